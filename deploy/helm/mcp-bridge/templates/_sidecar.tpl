{{/*
A bridge beside another program in its pod. A chart that has this one as a dependency
writes:

  containers: {{ include "bridge.sidecar" (dict "root" $ "values" .Values.mcp) | nindent 2 }}
  volumes: {{ include "bridge.sidecar.volumes" (dict "root" $ "values" .Values.mcp) | nindent 2 }}

and bridge.sidecar.config, in a ConfigMap NAME-mcp under the key bridge.yaml.

values has: image, port, logLevel, resources, config, env, auth { enabled, secretName,
key }, and volumeMounts. All but config have defaults.
*/}}
{{- define "bridge.sidecar.name" -}}
{{ .root.Release.Name }}-mcp
{{- end }}

{{- define "bridge.sidecar.config" -}}
{{- $v := .values }}
{{- if not (($v.config).servers) }}{{ fail "bridge.sidecar: config.servers is empty: name at least one server" }}{{ end }}
{{- $auth := $v.auth | default dict }}
{{- $c := deepCopy $v.config }}
{{- $_ := set $c "listen" (printf ":%d" (int ($v.port | default 8808))) }}
{{- $_ := set $c "log_level" ($c.log_level | default $v.logLevel | default "info") }}
{{- if $auth.enabled }}
{{- $_ := set $c "access" (append ($c.access | default list) (dict "name" "clients" "token_file" "/run/secrets/mcp-bridge/token")) }}
{{- else if not $c.access }}
{{- if not $v.insecure }}{{ fail "bridge.sidecar: auth.enabled is false, so everybody who reaches the pod could use every server: enable it, or set insecure: true" }}{{ end }}
{{- $name := include "bridge.sidecar.name" . }}
{{- $_ := set $c "allowed_hosts" (uniq (concat ($c.allowed_hosts | default list) (list "${POD_IP}" $name (printf "%s.%s" $name .root.Release.Namespace) (printf "%s.%s.svc" $name .root.Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .root.Release.Namespace)))) }}
{{- end }}
{{- toYaml $c }}
{{- end }}

{{- define "bridge.sidecar" -}}
{{- $v := .values }}
{{- $image := $v.image | default dict }}
{{- $auth := $v.auth | default dict }}
- name: mcp-bridge
  image: {{ $image.repository | default "mcp-bridge" }}:{{ $image.tag | default "0.1.0" }}
  imagePullPolicy: {{ $image.pullPolicy | default "IfNotPresent" }}
  args:
    - serve
    - -c
    - /etc/mcp-bridge/bridge.yaml
    - --log-format=json
    {{- if $v.insecure }}
    - --insecure
    {{- end }}
  env:
    - name: POD_IP
      valueFrom: { fieldRef: { fieldPath: status.podIP } }
    {{- with $v.env }}{{ toYaml . | nindent 4 }}{{ end }}
  ports:
    - { name: mcp, containerPort: {{ $v.port | default 8808 }}, protocol: TCP }
  livenessProbe:
    httpGet: { path: /healthz, port: mcp, httpHeaders: [{ name: Host, value: localhost }] }
    periodSeconds: 10
    failureThreshold: 3
  readinessProbe:
    {{- /* With the other program in the pod, the bridge does not decide whether the pod is ready. */}}
    httpGet: { path: /healthz, port: mcp, httpHeaders: [{ name: Host, value: localhost }] }
    periodSeconds: 5
    failureThreshold: 2
  lifecycle:
    preStop: { sleep: { seconds: 5 } }
  {{- with $v.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: { drop: [ALL] }
    seccompProfile: { type: RuntimeDefault }
  volumeMounts:
    - { name: mcp-config, mountPath: /etc/mcp-bridge, readOnly: true }
    {{- if $auth.enabled }}
    - { name: mcp-keys, mountPath: /run/secrets/mcp-bridge, readOnly: true }
    {{- end }}
    - { name: mcp-tmp, mountPath: /tmp }
    - { name: mcp-home, mountPath: /var/lib/mcp-bridge }
    {{- with $v.volumeMounts }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}

{{- define "bridge.sidecar.volumes" -}}
{{- $auth := .values.auth | default dict }}
- name: mcp-config
  configMap: { name: {{ include "bridge.sidecar.name" . }} }
- name: mcp-tmp
  emptyDir: {}
- name: mcp-home
  emptyDir: {}
{{- if $auth.enabled }}
- name: mcp-keys
  secret:
    secretName: {{ required "bridge.sidecar: auth.secretName is missing: the Secret that has the key of callers" $auth.secretName }}
    {{- /* The pod's group is that of the other program. Keys are readable for all users of the pod. */}}
    defaultMode: 0444
    items: [{ key: {{ $auth.key | default "token" }}, path: token }]
{{- end }}
{{- end }}
