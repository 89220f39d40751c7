{{- define "n8n.labels" -}}
app.kubernetes.io/name: n8n
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The values of the sidecar, as YAML. */}}
{{- define "n8n.mcp" -}}
{{- $d := .Values.mcp.discovery }}
{{- $rest := dict }}
{{- if eq $d.method "shared-volume" }}{{ $rest = dict "catalog" (dict "file" "/tmp/tools/n8n-tools.json") }}
{{- else if eq $d.method "api" }}{{ $rest = dict "catalog" (dict "url" $d.url) "refresh" $d.refreshInterval }}
{{- else if eq $d.method "hooks" }}{{ $rest = dict "catalog" (dict "webhook" true "secret" "${HOOK_SECRET}") }}
{{- else }}{{ fail (printf "mcp.discovery.method is %q: it must be shared-volume, api or hooks" $d.method) }}
{{- end }}
{{- $server := dict "share" "principal" "rest" (set $rest "base_url" "http://localhost:5678") }}
{{- $env := .Values.mcp.env }}
{{- if eq $d.method "hooks" }}
{{- $env = append $env (dict "name" "HOOK_SECRET" "valueFrom" (dict "secretKeyRef" (dict "name" $d.hooks.secretName "key" $d.hooks.key))) }}
{{- end }}
{{- $mount := dict "name" "tools" "mountPath" "/tmp/tools" "readOnly" true }}
{{- merge (dict "config" (dict "servers" (dict "n8n-tools" $server)) "env" $env "volumeMounts" (list $mount)) (omit .Values.mcp "env") | toYaml }}
{{- end }}
