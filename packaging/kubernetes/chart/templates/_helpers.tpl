{{- define "weir.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* Labels of the pods of a component: (dict "root" $ "component" "gateway"). */ -}}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* The component whose pods have the PHP workers. */ -}}
{{- define "weir.workers" -}}
{{ ternary "pool" "gateway" .Values.pools.enabled }}
{{- end }}

{{- define "weir.server" -}}
[server]
admin = "unix:/run/weir/admin.sock"
admin_tcp = "0.0.0.0:9180"
shutdown_delay = "{{ .Values.shutdown.delay }}s"
shutdown_timeout = "{{ .Values.shutdown.timeout }}s"
{{- end }}

{{- define "weir.php" -}}
[pool.main]
runtime = "php"
pm = "static"
max_children = {{ .Values.workers }}
clear_env = false
php_value = { "session.save_path" = "/tmp" }
{{- end }}

{{- define "weir.config.gateway" -}}
{{- if .Values.config.gateway -}}
{{ .Values.config.gateway }}
{{- else -}}
{{ include "weir.server" . }}
trusted = {{ toJson .Values.trusted }}

[listen.http]
address = "0.0.0.0:8080"

[site.main]
root = {{ .Values.site.root | quote }}
{{- with .Values.site.fallback }}
fallback = {{ . | quote }}
{{- end }}
pool = "main"

{{ if .Values.pools.enabled -}}
[pool.main]
runtime = "servers"
servers = ["{{ include "weir.name" . }}-pool.{{ .Release.Namespace }}.svc.cluster.local:9000"]
resolve_max = "10s"
check = "tcp"
{{- else -}}
{{ include "weir.php" . }}
{{- end }}

[log]
access = "stdout"
format = "json"
{{- end }}
{{- end }}

{{- define "weir.config.pool" -}}
{{- if .Values.config.pool -}}
{{ .Values.config.pool }}
{{- else -}}
{{ include "weir.server" . }}

[listen.fcgi]
protocol = "fastcgi"
address = "0.0.0.0:9000"
pool = "main"

{{ include "weir.php" . }}
{{- end }}
{{- end }}
