{{- define "sextant.labels" -}}
app.kubernetes.io/name: sextant
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "sextant.selector" -}}
app.kubernetes.io/name: sextant
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name | default .role }}
{{- end }}

{{- /* What every role is told. */ -}}
{{- define "sextant.environment" -}}
- name: POD_IP
  valueFrom: { fieldRef: { fieldPath: status.podIP } }
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- { name: SEXTANT_LOG__FORMAT, value: json }
- { name: SEXTANT_LISTEN, value: "0.0.0.0:8080" }
- { name: SEXTANT_FLEET__NAME, value: {{ .Values.fleet | quote }} }
- { name: SEXTANT_FLEET__LISTEN, value: "0.0.0.0:7070" }
- { name: SEXTANT_FLEET__ADVERTISE, value: "$(POD_IP):7070" }
- { name: SEXTANT_WORKER__NAME, value: "$(POD_NAME)" }
- name: SEXTANT_METADATA__URL
  valueFrom: { secretKeyRef: { name: {{ .Values.stores.secret }}, key: metadata-url } }
- name: SEXTANT_REGISTRY__URL
  valueFrom: { secretKeyRef: { name: {{ .Values.stores.secret }}, key: registry-url } }
- { name: SEXTANT_OBJECTS__URL, value: {{ .Values.stores.objects.url | quote }} }
{{- with .Values.stores.objects.endpoint }}
- { name: SEXTANT_OBJECTS__ENDPOINT, value: {{ . | quote }} }
{{- end }}
- { name: AWS_REGION, value: {{ .Values.stores.objects.region | quote }} }
- name: AWS_ACCESS_KEY_ID
  valueFrom: { secretKeyRef: { name: {{ .Values.stores.secret }}, key: aws-access-key-id, optional: true } }
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: { secretKeyRef: { name: {{ .Values.stores.secret }}, key: aws-secret-access-key, optional: true } }
- { name: SEXTANT_AUTH__MODE, value: {{ .Values.auth.mode | quote }} }
- name: SEXTANT_AUTH__ADMIN_KEY
  valueFrom: { secretKeyRef: { name: {{ .Values.stores.secret }}, key: admin-key, optional: true } }
{{- if .Values.fleetTls.secret }}
- { name: SEXTANT_FLEET__CERTIFICATE, value: /etc/sextant/fleet/tls.crt }
- { name: SEXTANT_FLEET__KEY, value: /etc/sextant/fleet/tls.key }
- { name: SEXTANT_FLEET__CA, value: /etc/sextant/fleet/ca.crt }
{{- end }}
{{- range $name, $value := .Values.settings }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- end }}

{{- /* One role as a Deployment: {root, role, settings}, a name where a role has several, and
all roles where a pod has more than one. */ -}}
{{- define "sextant.deployment" -}}
{{- $values := .root.Values -}}
{{- $apiTls := and (eq .role "api") $values.apiTls.secret -}}
{{- $scales := and (eq .role "autoscaler") $values.autoscaler.scalesWorkers -}}
{{- $scaled := and (eq .role "worker") $values.autoscaler.scalesWorkers -}}
{{- $image := .settings.image | default dict -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name | default .role }}
  labels:
    {{- include "sextant.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name | default .role }}
spec:
  {{- if not $scaled }}
  replicas: {{ .settings.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "sextant.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "sextant.selector" . | nindent 8 }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "8080"
    spec:
      automountServiceAccountToken: {{ if $scales }}true{{ else }}false{{ end }}
      {{- if $scales }}
      serviceAccountName: {{ .root.Release.Name }}-autoscaler
      {{- end }}
      terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        fsGroup: 10001
        seccompProfile: { type: RuntimeDefault }
      {{- with .settings.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .settings.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .role }}
          image: "{{ $image.repository | default $values.image.repository }}:{{ $image.tag | default $values.image.tag | default .root.Chart.AppVersion }}"
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: ["serve", "--role", {{ .roles | default .role | quote }}{{ range $key, $value := $values.set }}, "--set", {{ printf "%s=%v" $key $value | quote }}{{ end }}]
          env:
            {{- include "sextant.environment" .root | nindent 12 }}
            {{- if eq .role "api" }}
            - { name: SEXTANT_LIMITS__SHUTDOWN_DELAY_MS, value: {{ $values.shutdownDelayMs | quote }} }
            {{- end }}
            {{- with .settings.devices }}
            - { name: SEXTANT_WORKER__DEVICES, value: {{ . | quote }} }
            {{- end }}
            {{- if hasKey .settings "register" }}
            - { name: SEXTANT_VARIANTS__REGISTER, value: {{ .settings.register | quote }} }
            {{- end }}
            {{- if $apiTls }}
            - { name: SEXTANT_TLS__CERTIFICATE, value: /etc/sextant/api/tls.crt }
            - { name: SEXTANT_TLS__KEY, value: /etc/sextant/api/tls.key }
            {{- end }}
          ports:
            - { name: http, containerPort: 8080 }
            - { name: grpc, containerPort: 7070 }
          livenessProbe:
            httpGet: { path: /health/live, port: http{{ if $apiTls }}, scheme: HTTPS{{ end }} }
            periodSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: { path: /health/ready, port: http{{ if $apiTls }}, scheme: HTTPS{{ end }} }
            periodSeconds: 2
          resources: {{- toYaml .settings.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
          volumeMounts:
            - { name: data, mountPath: /var/lib/sextant }
            - { name: temporary, mountPath: /tmp }
            {{- if $values.fleetTls.secret }}
            - { name: fleet-tls, mountPath: /etc/sextant/fleet, readOnly: true }
            {{- end }}
            {{- if $apiTls }}
            - { name: api-tls, mountPath: /etc/sextant/api, readOnly: true }
            {{- end }}
      volumes:
        - name: data
          emptyDir: {{ if .settings.cacheSize }}{ sizeLimit: {{ .settings.cacheSize }} }{{ else }}{}{{ end }}
        - name: temporary
          emptyDir: {}
        {{- if $values.fleetTls.secret }}
        - name: fleet-tls
          secret: { secretName: {{ $values.fleetTls.secret }} }
        {{- end }}
        {{- if $apiTls }}
        - name: api-tls
          secret: { secretName: {{ $values.apiTls.secret }} }
        {{- end }}
{{- end }}
