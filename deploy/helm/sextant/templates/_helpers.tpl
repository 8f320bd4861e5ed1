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

{{- /* A value as a text that settings can be read from. Numbers of values files are floating-point ones, which
would be written with an exponent from a million on. */ -}}
{{- define "sextant.scalar" -}}
{{- if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . }}{{ $items = append $items (include "sextant.scalar" .) }}{{ end -}}
{{- join "," $items -}}
{{- else if kindIs "map" . -}}
{{- fail (printf "`%v` is a table: write a value, and the tables before its name, with dots" .) -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- printf "%.0f" . -}}
{{- else if not (kindIs "invalid" .) -}}
{{- . -}}
{{- end -}}
{{- end }}

{{- /* A quantity such as 16Gi in bytes. */ -}}
{{- define "sextant.bytes" -}}
{{- $text := include "sextant.scalar" . -}}
{{- $number := regexFind "^[0-9]+(\\.[0-9]+)?" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "`%s` is no size: write one such as 16Gi" $text) -}}
{{- end -}}
{{- printf "%.0f" (floor (mulf (float64 $number) (get $units $unit))) -}}
{{- end }}

{{- define "sextant.half" -}}
{{- div (include "sextant.bytes" . | int64) 2 -}}
{{- end }}

{{- /* The name of the pool that says how many pods a Deployment has, if there is one: {root, key}. */ -}}
{{- define "sextant.pool" -}}
{{- $found := "" -}}
{{- range $name, $pool := .root.Values.autoscaler.pools -}}
{{- if and (not $pool.workload) (eq ($pool.of | default "worker") $.key) -}}
{{- if $found -}}
{{- fail (printf "autoscaler.pools: `%s` and `%s` are both of the Deployment of `%s`" $found $name $.key) -}}
{{- end -}}
{{- $found = $name -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end }}

{{- /* The Deployment of a pool's workers: {root, pool}. */ -}}
{{- define "sextant.poolDeployment" -}}
{{- .root.Release.Name }}-{{ eq (.pool.of | default "worker") "workerGpu" | ternary "worker-gpu" "worker" -}}
{{- end }}

{{- /* Whether a pool has this provider: {root, provider}. */ -}}
{{- define "sextant.hasProvider" -}}
{{- range $name, $pool := .root.Values.autoscaler.pools -}}
{{- if eq ($pool.provider | default "kubernetes") $.provider }}true{{ end -}}
{{- end -}}
{{- end }}

{{- /* Whether there are GPU workers, or may be. */ -}}
{{- define "sextant.hasGpu" -}}
{{- if or (gt (int .Values.workerGpu.replicas) 0) (include "sextant.pool" (dict "root" . "key" "workerGpu")) }}true{{ end -}}
{{- end }}

{{- /* The Secret with a Deployment's certificate: {root, key, name}. */ -}}
{{- define "sextant.fleetSecret" -}}
{{- get .root.Values.fleetTls.secrets .key | default (printf "%s-fleet-%s" .root.Release.Name .name) -}}
{{- end }}

{{- /* The account of pods other than an autoscaler that scales pods. */ -}}
{{- define "sextant.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default .Release.Name -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- /* What the autoscaler is told of its pools, as arguments: keys and values, separated by `=`, in a list. */ -}}
{{- define "sextant.poolSettings" -}}
{{- $root := . -}}
{{- $settings := list -}}
{{- range $name, $pool := .Values.autoscaler.pools -}}
{{- $own := omit $pool "of" -}}
{{- $defaults := dict "provider" "kubernetes" "end_s" $root.Values.terminationGracePeriodSeconds -}}
{{- if eq ($pool.provider | default "kubernetes") "kubernetes" -}}
{{- $deployment := include "sextant.poolDeployment" (dict "root" $root "pool" $pool) -}}
{{- $_ := set $defaults "workload" (printf "deployment/%s" $deployment) -}}
{{- end -}}
{{- range $key, $value := merge $own $defaults -}}
{{- $settings = append $settings (printf "autoscaler.pools.%s.%s=%s" $name $key (include "sextant.scalar" $value)) -}}
{{- end -}}
{{- end -}}
{{- toJson $settings -}}
{{- end }}
