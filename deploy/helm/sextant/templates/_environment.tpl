{{- /* What a pod is told: {root, role, key, name, settings, tls}. */ -}}
{{- define "sextant.environment" -}}
{{- $values := .root.Values -}}
{{- $stores := $values.stores -}}
{{- $pool := include "sextant.pool" (dict "root" .root "key" .key) -}}
{{- $limits := dig "limits" dict (.settings.resources | default dict) -}}
- name: POD_IP
  valueFrom: { fieldRef: { fieldPath: status.podIP } }
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- { name: SEXTANT_LOG__FORMAT, value: json }
- { name: SEXTANT_LISTEN, value: "0.0.0.0:8080" }
- { name: SEXTANT_FLEET__NAME, value: {{ $values.fleet | quote }} }
- { name: SEXTANT_FLEET__START_PATIENCE_MS, value: "{{ include "sextant.scalar" $stores.patienceSeconds }}000" }
{{- if has .role (list "dispatcher" "worker") }}
- { name: SEXTANT_FLEET__LISTEN, value: "0.0.0.0:7070" }
- { name: SEXTANT_FLEET__ADVERTISE, value: "$(POD_IP):7070" }
{{- end }}
- { name: SEXTANT_WORKER__NAME, value: "$(POD_NAME)" }
- name: SEXTANT_METADATA__URL
  valueFrom: { secretKeyRef: { name: {{ $stores.secret }}, key: metadata-url } }
- name: SEXTANT_REGISTRY__URL
  valueFrom: { secretKeyRef: { name: {{ $stores.secret }}, key: registry-url } }
- { name: SEXTANT_OBJECTS__URL, value: {{ $stores.objects.url | quote }} }
{{- with $stores.objects.endpoint }}
- { name: SEXTANT_OBJECTS__ENDPOINT, value: {{ . | quote }} }
{{- end }}
- { name: AWS_REGION, value: {{ $stores.objects.region | quote }} }
- name: AWS_ACCESS_KEY_ID
  valueFrom: { secretKeyRef: { name: {{ $stores.secret }}, key: aws-access-key-id, optional: true } }
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: { secretKeyRef: { name: {{ $stores.secret }}, key: aws-secret-access-key, optional: true } }
- { name: SEXTANT_AUTH__MODE, value: {{ $values.auth.mode | quote }} }
- name: SEXTANT_AUTH__ADMIN_KEY
  valueFrom: { secretKeyRef: { name: {{ $stores.secret }}, key: admin-key, optional: true } }
{{- if .tls }}
- { name: SEXTANT_FLEET__CERTIFICATE, value: /etc/sextant/fleet/tls.crt }
- { name: SEXTANT_FLEET__KEY, value: /etc/sextant/fleet/tls.key }
- { name: SEXTANT_FLEET__CA, value: /etc/sextant/fleet/ca.crt }
- { name: SEXTANT_FLEET__SERVER_NAME, value: {{ $values.fleetTls.serverName | quote }} }
- { name: SEXTANT_FLEET__ROLE_NAMES, value: "true" }
{{- end }}
{{- with .settings.diskSize }}
- { name: SEXTANT_OBJECTS__CACHE_BYTES, value: {{ include "sextant.half" . | quote }} }
{{- end }}
{{- if and (eq .key "workerGpu") $limits.memory }}
# The other half is the worker's.
- { name: SEXTANT_VARIANTS__MEMORY_BYTES, value: {{ include "sextant.half" $limits.memory | quote }} }
{{- end }}
{{- if eq .role "api" }}
- { name: SEXTANT_LIMITS__SHUTDOWN_DELAY_MS, value: {{ include "sextant.scalar" $values.shutdownDelayMs | quote }} }
{{- if $values.apiTls.secret }}
- { name: SEXTANT_TLS__CERTIFICATE, value: /etc/sextant/api/tls.crt }
- { name: SEXTANT_TLS__KEY, value: /etc/sextant/api/tls.key }
{{- end }}
{{- end }}
{{- if and (eq .role "autoscaler") (include "sextant.hasProvider" (dict "root" .root "provider" "keda")) }}
- { name: SEXTANT_AUTOSCALER__KEDA_LISTEN, value: "0.0.0.0:7071" }
{{- end }}
{{- with .settings.devices }}
- { name: SEXTANT_WORKER__DEVICES, value: {{ include "sextant.scalar" . | quote }} }
{{- end }}
{{- if and $pool (eq .key "workerGpu") }}
- { name: SEXTANT_WORKER__CUDA__DEVICE_TYPE, value: {{ $pool | quote }} }
{{- else if $pool }}
- { name: SEXTANT_WORKER__DEVICE_TYPE, value: {{ $pool | quote }} }
{{- end }}
{{- if hasKey .settings "register" }}
- { name: SEXTANT_VARIANTS__REGISTER, value: {{ .settings.register | quote }} }
{{- end }}
{{- range $name, $value := $values.settings }}
- { name: {{ $name }}, value: {{ include "sextant.scalar" $value | quote }} }
{{- end }}
{{- with $values.pods.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- with .settings.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
