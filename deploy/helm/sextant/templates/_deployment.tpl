{{- /* One role as a Deployment: {root, role, key}, where `key` has its values; a name where a role has several, and all
roles where a pod has more than one. */ -}}
{{- define "sextant.deployment" -}}
{{- $values := .root.Values -}}
{{- $settings := get $values .key -}}
{{- $name := .name | default .role -}}
{{- $pods := $values.pods -}}
{{- $tls := and $values.fleetTls.enabled (hasKey $values.fleetTls.secrets .key) -}}
{{- $apiTls := and (eq .role "api") (ne $values.apiTls.secret "") -}}
{{- $isAutoscaler := eq .role "autoscaler" -}}
{{- $scales := and $isAutoscaler (ne (include "sextant.hasProvider" (dict "root" .root "provider" "kubernetes")) "") -}}
{{- $keda := and $isAutoscaler (include "sextant.hasProvider" (dict "root" .root "provider" "keda")) -}}
{{- $scaled := include "sextant.pool" (dict "root" .root "key" .key) -}}
{{- $account := $scales | ternary (printf "%s-autoscaler" .root.Release.Name) (include "sextant.account" .root) -}}
{{- $image := $settings.image | default dict -}}
{{- $environment := dict "root" .root "role" .role "key" .key "settings" $settings "tls" $tls -}}
{{- $arguments := list "serve" "--role" (.roles | default .role) -}}
{{- range $key, $value := $values.set }}
{{- $arguments = concat $arguments (list "--set" (printf "%s=%s" $key (include "sextant.scalar" $value))) -}}
{{- end }}
{{- if $isAutoscaler }}
{{- range include "sextant.poolSettings" .root | fromJsonArray }}
{{- $arguments = concat $arguments (list "--set" .) -}}
{{- end }}
{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ $name }}
  labels:
    {{- include "sextant.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ $name }}
spec:
  {{- if not $scaled }}
  replicas: {{ $settings.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "sextant.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "sextant.selector" . | nindent 8 }}
        {{- with $settings.labels | default $pods.labels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "8080"
        prometheus.io/scheme: {{ $apiTls | ternary "https" "http" }}
        {{- with $settings.annotations | default $pods.annotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      automountServiceAccountToken: {{ $scales | ternary "true" "false" }}
      {{- with $account }}
      serviceAccountName: {{ . }}
      {{- end }}
      {{- with $values.image.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $settings.priorityClassName | default $pods.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      terminationGracePeriodSeconds: {{ include "sextant.scalar" $values.terminationGracePeriodSeconds }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        fsGroup: 10001
        seccompProfile: { type: RuntimeDefault }
      {{- with $settings.nodeSelector | default $pods.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $settings.tolerations | default $pods.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $settings.affinity | default $pods.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- $own := dict "labelSelector" (dict "matchLabels" (include "sextant.selector" . | fromYaml)) }}
        {{- $usual := list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway") }}
        {{- range $settings.topologySpreadConstraints | default $pods.topologySpreadConstraints | default $usual }}
        - {{- toYaml (hasKey . "labelSelector" | ternary . (merge (deepCopy .) $own)) | nindent 10 }}
        {{- end }}
      containers:
        - name: {{ .role }}
          image: "{{ $image.repository | default $values.image.repository }}:{{ $image.tag | default $values.image.tag | default .root.Chart.AppVersion }}"
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: {{- toYaml $arguments | nindent 12 }}
          env:
            {{- include "sextant.environment" $environment | nindent 12 }}
          ports:
            - { name: http, containerPort: 8080 }
            {{- if has .role (list "dispatcher" "worker") }}
            - { name: grpc, containerPort: 7070 }
            {{- end }}
            {{- if $keda }}
            - { name: keda, containerPort: 7071 }
            {{- end }}
          # The port opens when the stores are reached and their schema is that of this version.
          startupProbe:
            httpGet: { path: /health/live, port: http{{ if $apiTls }}, scheme: HTTPS{{ end }} }
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: {{ add (div (add (int $values.stores.patienceSeconds) (int $values.stores.migrationSeconds)) 5) 12 }}
          livenessProbe:
            httpGet: { path: /health/live, port: http{{ if $apiTls }}, scheme: HTTPS{{ end }} }
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: { path: /health/ready, port: http{{ if $apiTls }}, scheme: HTTPS{{ end }} }
            periodSeconds: 2
            timeoutSeconds: 2
          resources: {{- toYaml $settings.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
          volumeMounts:
            - { name: data, mountPath: /var/lib/sextant }
            - { name: temporary, mountPath: /tmp }
            {{- if $tls }}
            - { name: fleet-tls, mountPath: /etc/sextant/fleet, readOnly: true }
            {{- end }}
            {{- if $apiTls }}
            - { name: api-tls, mountPath: /etc/sextant/api, readOnly: true }
            {{- end }}
            {{- with concat $pods.extraVolumeMounts ($settings.extraVolumeMounts | default list) }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: data
          {{- if $settings.dataVolume }}
          {{- toYaml $settings.dataVolume | nindent 10 }}
          {{- else }}
          emptyDir: {{ if $settings.diskSize }}{ sizeLimit: {{ include "sextant.scalar" $settings.diskSize | quote }} }{{ else }}{}{{ end }}
          {{- end }}
        - name: temporary
          emptyDir: {}
        {{- if $tls }}
        - name: fleet-tls
          secret: { secretName: {{ include "sextant.fleetSecret" (dict "root" .root "key" .key "name" $name) }} }
        {{- end }}
        {{- if $apiTls }}
        - name: api-tls
          secret: { secretName: {{ $values.apiTls.secret }} }
        {{- end }}
        {{- with concat $pods.extraVolumes ($settings.extraVolumes | default list) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
