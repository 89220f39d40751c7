// Package chart checks the Helm chart by the rules of Helm and Kubernetes.
package chart

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	sigs "sigs.k8s.io/yaml"
)

const (
	folder  = "../../helm/mcp-bridge"
	example = "../../helm/examples/n8n"
)

// load reads a chart; that of an example has the other as its dependency.
func load(t *testing.T, dir string) *v2.Chart {
	t.Helper()
	c, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if dir != folder {
		c.AddDependency(load(t, folder))
	}
	return c
}

// values reads values: from files, then from a text.
func values(t *testing.T, file, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	if file != "" {
		read, err := common.ReadValuesFile(filepath.Join(folder, "ci", file))
		if err != nil {
			t.Fatal(err)
		}
		all = read
	}
	var more map[string]any
	if err := sigs.Unmarshal([]byte(text), &more); err != nil {
		t.Fatal(err)
	}
	return util.MergeTables(more, all)
}

// render renders a chart like helm install: the objects of each template.
func render(t *testing.T, c *v2.Chart, vals map[string]any) (map[string]string, error) {
	t.Helper()
	if err := chartutil.ProcessDependencies(c, vals); err != nil {
		return nil, err
	}
	ready, err := util.ToRenderValues(c, vals, common.ReleaseOptions{Name: "rel", Namespace: "tools", Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, ready)
}

// An object is a rendered object of Kubernetes.
type object struct {
	version, kind, name string
	text                []byte // JSON
	typed               any    // decoded strictly
}

// arkServer is an MCPServer of ARK, ark.mckinsey.com/v1alpha1, with the fields that the chart uses.
type arkServer struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Transport string `json:"transport"`
		Address   struct {
			Value     string `json:"value,omitempty"`
			ValueFrom struct {
				ServiceRef struct {
					Name, Namespace, Port, Path string
				} `json:"serviceRef"`
			} `json:"valueFrom"`
		} `json:"address"`
		Headers []struct {
			Name  string `json:"name"`
			Value struct {
				Value     string `json:"value,omitempty"`
				ValueFrom struct {
					SecretKeyRef core.SecretKeySelector `json:"secretKeyRef"`
				} `json:"valueFrom"`
			} `json:"value"`
		} `json:"headers"`
		Timeout      string `json:"timeout"`
		PollInterval string `json:"pollInterval"`
	} `json:"spec"`
}

// arkAgent and arkQuery are two more types of ARK.
type arkAgent struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Metadata   struct{ Name string } `json:"metadata"`
	Spec       struct {
		ModelRef struct{ Name string }         `json:"modelRef"`
		Prompt   string                        `json:"prompt"`
		Tools    []struct{ Type, Name string } `json:"tools"`
	} `json:"spec"`
}

type arkQuery struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Metadata   struct{ Name string } `json:"metadata"`
	Spec       struct {
		Input   string                      `json:"input"`
		Target  struct{ Type, Name string } `json:"target"`
		Timeout string                      `json:"timeout"`
	} `json:"spec"`
}

// kinds are the types of objects that may be rendered.
var kinds = map[string]func() any{
	"v1/ConfigMap":                            func() any { return new(core.ConfigMap) },
	"v1/Service":                              func() any { return new(core.Service) },
	"v1/ServiceAccount":                       func() any { return new(core.ServiceAccount) },
	"v1/Pod":                                  func() any { return new(core.Pod) },
	"v1/PersistentVolumeClaim":                func() any { return new(core.PersistentVolumeClaim) },
	"apps/v1/Deployment":                      func() any { return new(apps.Deployment) },
	"autoscaling/v2/HorizontalPodAutoscaler":  func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"policy/v1/PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"networking.k8s.io/v1/Ingress":            func() any { return new(networking.Ingress) },
	"monitoring.coreos.com/v1/ServiceMonitor": func() any { return new(monitoring.ServiceMonitor) },
	"monitoring.coreos.com/v1/PodMonitor":     func() any { return new(monitoring.PodMonitor) },
	"monitoring.coreos.com/v1/PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
	"gateway.networking.k8s.io/v1/HTTPRoute":  func() any { return new(gateway.HTTPRoute) },
	"ark.mckinsey.com/v1alpha1/MCPServer":     func() any { return new(arkServer) },
	"ark.mckinsey.com/v1alpha1/Agent":         func() any { return new(arkAgent) },
	"ark.mckinsey.com/v1alpha1/Query":         func() any { return new(arkQuery) },
}

// parse reads the objects of a template, of any type.
func parse(text string) (all []object, err error) {
	r := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := r.Read()
		if err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(regexp.MustCompile(`(?m)^(#.*|---)$`).ReplaceAll(doc, nil))) == 0 {
			continue
		}
		raw, err := sigs.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, doc)
		}
		var head struct {
			APIVersion string
			Kind       string
			Metadata   struct{ Name string }
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, err
		}
		all = append(all, object{head.APIVersion, head.Kind, head.Metadata.Name, raw, nil})
	}
}

// decode reads the objects of a template. An unknown field is an error.
func decode(text string) ([]object, error) {
	all, err := parse(text)
	if err != nil {
		return nil, err
	}
	for i := range all {
		o := &all[i]
		make := kinds[o.version+"/"+o.kind]
		if make == nil || o.name == "" {
			return nil, fmt.Errorf("%s/%s %q is not known", o.version, o.kind, o.name)
		}
		o.typed = make()
		d := json.NewDecoder(bytes.NewReader(o.text))
		d.DisallowUnknownFields()
		if err := d.Decode(o.typed); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.kind, o.name, err)
		}
	}
	return all, nil
}

// objects renders a chart and returns its objects.
func objects(t *testing.T, c *v2.Chart, vals map[string]any) ([]object, error) {
	t.Helper()
	files, err := render(t, c, vals)
	if err != nil {
		return nil, err
	}
	var all []object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		some, err := decode(files[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// all returns the objects of a type.
func all[T any](made []object) (found []*T) {
	for _, o := range made {
		if typed, ok := o.typed.(*T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// matches reports whether a selector matches labels.
func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// faults returns the places where the objects of a release do not fit each other.
func faults(made []object) (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	deployments := all[apps.Deployment](made)
	if n := len(deployments); n != 1 && (n != 2 || deployments[1].Name != deployments[0].Name+"-worker") {
		return []string{fmt.Sprintf("there are %d deployments", len(deployments))}
	}
	d := deployments[0]
	pod := d.Spec.Template
	ports := map[string]int32{}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
	}
	// Each selector matches the pods for clients or the workers, never both.
	selects := func(name string, selector map[string]string) bool {
		if !strings.HasSuffix(name, "-worker") {
			return matches(selector, pod.Labels) && (len(deployments) == 1 || !matches(selector, deployments[1].Spec.Template.Labels))
		}
		return len(deployments) == 2 && matches(selector, deployments[1].Spec.Template.Labels) && !matches(selector, pod.Labels)
	}
	for _, d := range deployments {
		if !selects(d.Name, d.Spec.Selector.MatchLabels) {
			fault("the deployment does not select its pods")
		}
		found = append(found, podFaults(made, d.Spec.Template.Spec)...)
	}
	for _, s := range all[core.Service](made) {
		if !selects(s.Name, s.Spec.Selector) {
			fault("Service %s does not select the pods", s.Name)
		}
		for _, p := range s.Spec.Ports {
			if p.TargetPort.StrVal == "" || ports[p.TargetPort.StrVal] == 0 {
				fault("Service %s: the pods have no port %s", s.Name, p.TargetPort.String())
			}
		}
	}
	for _, p := range all[networking.NetworkPolicy](made) {
		if !selects(p.Name, p.Spec.PodSelector.MatchLabels) {
			fault("the NetworkPolicy does not select the pods")
		}
		for _, in := range p.Spec.Ingress {
			if len(in.From) == 0 {
				fault("the NetworkPolicy lets everybody in")
			}
			for _, port := range in.Ports {
				if port.Port.StrVal == "" || ports[port.Port.StrVal] == 0 {
					fault("the NetworkPolicy names the port %s, which no pod has", port.Port.String())
				}
			}
		}
	}
	for _, p := range all[policy.PodDisruptionBudget](made) {
		if !selects(p.Name, p.Spec.Selector.MatchLabels) {
			fault("the PodDisruptionBudget does not select the pods")
		}
	}
	for _, h := range all[autoscaling.HorizontalPodAutoscaler](made) {
		at := slices.IndexFunc(deployments, func(d *apps.Deployment) bool {
			return d.Name == h.Spec.ScaleTargetRef.Name && d.Name == h.Name && d.Spec.Replicas == nil
		})
		if at < 0 {
			fault("the HorizontalPodAutoscaler %s scales %s, which is not the Deployment of that name, or says replicas itself", h.Name, h.Spec.ScaleTargetRef.Name)
		}
	}
	for _, m := range all[monitoring.PodMonitor](made) {
		if !selects(m.Name, m.Spec.Selector.MatchLabels) {
			fault("the PodMonitor %s does not select the pods", m.Name)
		}
		for _, e := range m.Spec.PodMetricsEndpoints {
			if e.Port == nil || ports[*e.Port] == 0 {
				fault("the PodMonitor %s names a port that no pod has", m.Name)
			}
		}
	}
	services := map[string]*core.Service{}
	for _, s := range all[core.Service](made) {
		services[s.Name] = s
	}
	for _, m := range all[monitoring.ServiceMonitor](made) {
		chosen := 0
		for _, s := range services {
			if matches(m.Spec.Selector.MatchLabels, s.Labels) {
				chosen++
			}
		}
		if chosen != 1 {
			fault("the ServiceMonitor selects %d services", chosen)
		}
		// No Service leads to workers, so another object must.
		if watched := len(all[monitoring.PodMonitor](made)); watched != len(deployments)-1 {
			fault("%d deployments, and %d of them have a PodMonitor", len(deployments), watched)
		}
	}
	for _, i := range all[networking.Ingress](made) {
		for _, r := range i.Spec.Rules {
			for _, p := range r.HTTP.Paths {
				if services[p.Backend.Service.Name] == nil || services[p.Backend.Service.Name].Spec.Ports[0].Name != p.Backend.Service.Port.Name {
					fault("the Ingress leads to %s, which is no service", p.Backend.Service.Name)
				}
			}
		}
	}
	for _, r := range all[gateway.HTTPRoute](made) {
		for _, rule := range r.Spec.Rules {
			for _, b := range rule.BackendRefs {
				if s := services[string(b.Name)]; s == nil || s.Spec.Ports[0].Port != int32(*b.Port) {
					fault("the HTTPRoute leads to %s, which is no service", b.Name)
				}
			}
		}
	}
	for _, m := range all[arkServer](made) {
		ref := m.Spec.Address.ValueFrom.ServiceRef
		if s := services[ref.Name]; s == nil || s.Spec.Ports[0].Name != ref.Port || strings.HasPrefix(ref.Path, "/") {
			fault("MCPServer %s leads to %+v, which is no service", m.Metadata.Name, ref)
		}
	}
	for _, c := range all[core.ConfigMap](made) {
		for name, text := range c.Data {
			for _, m := range secretText.FindAllStringSubmatch(text, -1) {
				if !strings.HasPrefix(m[2], "$") {
					fault("ConfigMap %s: %s has what looks like a secret: %s", c.Name, name, m[0])
				}
			}
		}
	}
	return found
}

// podFaults returns the faults of a pod.
func podFaults(made []object, pod core.PodSpec) (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	mounted := map[string]bool{}
	for _, v := range pod.Volumes {
		mounted[v.Name] = true
		if v.ConfigMap != nil && !slices.ContainsFunc(made, func(o object) bool { return o.kind == "ConfigMap" && o.name == v.ConfigMap.Name }) && v.ConfigMap.Name != "my-bridge" {
			fault("the volume %s is of ConfigMap %s, which is not there", v.Name, v.ConfigMap.Name)
		}
	}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			if !mounted[m.Name] {
				fault("container %s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
		if c.Name == "mcp-bridge" {
			found = append(found, container(c, pod)...)
		}
	}
	return found
}

// secretText matches values that belong in a Secret.
var secretText = regexp.MustCompile(`(?i)(token|secret|password|authorization|api_key): "?(?:Bearer )?([^\s{"]+)`)

// container returns the faults of the bridge's container.
func container(c core.Container, pod core.PodSpec) (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	s := c.SecurityContext
	p := pod.SecurityContext
	switch {
	case s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}):
		fault("the container is not restricted")
	case (s.RunAsNonRoot == nil || !*s.RunAsNonRoot) && (p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot):
		fault("the container may run as root")
	case s.SeccompProfile == nil && (p == nil || p.SeccompProfile == nil):
		fault("the container has no seccomp profile")
	case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
		fault("the container may write everywhere")
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == "/tmp" && !m.ReadOnly }) {
		fault("no folder /tmp can be written, which npx, uvx and Python need")
	}
	if slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--log-level") }) {
		fault("an argument sets the log level, so that log_level of the file never counts")
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		fault("the token of the service account is mounted")
	}
	for name, probe := range map[string]*core.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		switch {
		case probe == nil || probe.HTTPGet == nil:
			fault("there is no probe of %s", name)
		case probe.HTTPGet.Port.StrVal != "mcp" || len(probe.HTTPGet.HTTPHeaders) != 1 || probe.HTTPGet.HTTPHeaders[0].Value != "localhost":
			fault("the probe of %s is %+v", name, probe.HTTPGet)
		case name == "liveness" && !strings.HasSuffix(probe.HTTPGet.Path, "/healthz"):
			fault("the probe of liveness is of %s", probe.HTTPGet.Path)
		}
	}
	return found
}

// release is the set of objects that a file of values renders.
func release(t *testing.T, file, more string) []object {
	t.Helper()
	made, err := objects(t, load(t, folder), values(t, file, more))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

var files = []string{"minimal-values.yaml", "full-values.yaml", "open-values.yaml", "existing-values.yaml", "oauth-values.yaml", "workers-values.yaml"}

// Each file of values renders objects that Kubernetes knows and that fit each other (O-076).
func TestObjects(t *testing.T) {
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			made := release(t, file, "")
			for _, fault := range faults(made) {
				t.Error(fault)
			}
			if file == "full-values.yaml" {
				seen := map[string]bool{}
				for _, o := range made {
					seen[o.kind] = true
				}
				if len(seen) < 12 {
					t.Errorf("of %d kinds only: %v", len(seen), slices.Sorted(maps.Keys(seen)))
				}
			}
		})
	}
}

// Tokens are for the address that clients use.
func TestPublicURL(t *testing.T) {
	for more, want := range map[string]string{
		"": "https://mcp.example.com",
		"config: { public_url: 'https://other.example.com:8443' }":                                                                    "https://other.example.com:8443",
		"ingress: { enabled: false }\nhttpRoute: { enabled: true, parentRefs: [{ name: gateway }], hostnames: [routed.example.com] }": "https://routed.example.com",
	} {
		var made struct {
			PublicURL string `json:"public_url"`
		}
		if err := sigs.Unmarshal([]byte(all[core.ConfigMap](release(t, "oauth-values.yaml", more))[0].Data["bridge.yaml"]), &made); err != nil || made.PublicURL != want {
			t.Errorf("%q: %q, %v, want %q", more, made.PublicURL, err, want)
		}
	}
	if made := release(t, "minimal-values.yaml", ""); strings.Contains(all[core.ConfigMap](made)[0].Data["bridge.yaml"], "public_url") {
		t.Error("without oauth there is a public_url")
	}
}

// As a dependency of another chart, the chart renders nothing.
func TestLibrary(t *testing.T) {
	if made := release(t, "full-values.yaml", "mode: library"); len(made) != 0 {
		t.Errorf("%d objects, want none", len(made))
	}
}

// Helm's linter has no remarks.
func TestLint(t *testing.T) {
	for _, file := range files {
		l := lint.RunAll(folder, values(t, file, ""), "tools")
		for _, m := range l.Messages {
			if !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("%s: %v", file, m)
			}
		}
	}
	if l := lint.RunAll(folder, values(t, files[0], "port: none"), "tools"); l.HighestSeverity < 2 {
		t.Errorf("wrong values are not seen: %v", l.Messages)
	}
}

// Contradictory values are refused, and the message says what to do (O-075).
func TestRefused(t *testing.T) {
	for _, tc := range []struct{ file, more, want string }{
		{"", "insecure: true", "config.servers is empty"},
		{"minimal-values.yaml", "access: []", "access is empty"},
		{"minimal-values.yaml", "replicas: 2", "cluster.enabled with Redis, or service.sessionAffinity: ClientIP"},
		{"minimal-values.yaml", "autoscaling: { enabled: true }", "cluster.enabled with Redis"},
		{"minimal-values.yaml", "cluster: { enabled: true }", "cluster.redis.existingSecret"},
		{"full-values.yaml", "cluster: { port: 8808 }", "cluster.port must be another one"},
		{"workers-values.yaml", "cluster: { enabled: false }\nreplicas: 1", "workers.enabled needs cluster.enabled"},
		{"workers-values.yaml", "workers: { autoscaling: { targetProcesses: null } }", "workers.autoscaling.enabled needs targetCPU or targetProcesses"},
		{"workers-values.yaml", "workers: { autoscaling: { minReplicas: 10 } }", "workers.autoscaling.minReplicas is more than"},
		{"workers-values.yaml", "config: { max_children: 80 }", "less than config.max_children (80)"},
		{"workers-values.yaml", "serviceMonitor: { tlsConfig: { caFile: /ca.pem } }", "serviceMonitor.tlsConfig.caFile"},
		{"workers-values.yaml", "workers: { autoscaling: { targetCalls: 1 } }", "targetCalls"},
		{"full-values.yaml", "workers: { enabled: true }", "no server of config has place: workers"},
		{"full-values.yaml", "cluster: { role: worker }", "role"},
		{"full-values.yaml", "cluster: { config: { role: front } }", "role"},
		{"full-values.yaml", "existingConfigMap: mine", "no effect with existingConfigMap"},
		{"minimal-values.yaml", "serviceMonitor: { enabled: true, access: nobody }", `no item of the name "nobody"`},
		{"minimal-values.yaml", "ingress: { enabled: true }", "needs ingress.hosts"},
		{"minimal-values.yaml", "httpRoute: { enabled: true }", "needs httpRoute.parentRefs"},
		{"minimal-values.yaml", "autoscaling: { enabled: true, maxReplicas: 1, targetCPU: null }", "needs targetCPU or targetCalls"},
		{"minimal-values.yaml", "autoscaling: { enabled: true, minReplicas: 4, maxReplicas: 2 }\nservice: { sessionAffinity: ClientIP }", "minReplicas is more than"},
		{"minimal-values.yaml", "replicas: 2\nservice: { sessionAffinity: ClientIP }\ningress: { enabled: true, hosts: [a.example.com] }", "does not heed service.sessionAffinity"},
		{"minimal-values.yaml", "serviceMonitor: { enabled: true }", "serviceMonitor.access is empty"},
		{"minimal-values.yaml", "ark: { enabled: true }", "ark.access is empty"},
		{"full-values.yaml", "config: { tls: { cert_file: a, key_file: b } }", "HTTP only"},
		{"minimal-values.yaml", "config: { listen: ':9000' }", "listen"},
		{"minimal-values.yaml", "config: { drain: 2m }", "drain"},
		{"minimal-values.yaml", "replica: 1", "replica"},
		{"minimal-values.yaml", "port: 0", "port"},
		{"minimal-values.yaml", "config: { cluster: { redis: x } }", "cluster"},
		{"minimal-values.yaml", "access: [{ name: a, existingSecret: s, key: k, rule: { token: x } }]", "token"},
		{"minimal-values.yaml", "config: { oauth: [{ issuer: 'https://idp.example.com' }] }", "config.oauth needs config.public_url"},
		{"minimal-values.yaml", "image: { pullPolicy: Sometimes }", "pullPolicy"},
	} {
		if _, err := objects(t, load(t, folder), values(t, tc.file, tc.more)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s with %s: %v, want %q", tc.file, tc.more, err, tc.want)
		}
	}
}

// Workers are separate pods that clients do not reach. They are like the others, except for their role and their own
// settings.
func TestWorkers(t *testing.T) {
	for more, roles := range map[string][2]string{"": {"front", "worker"}, "cluster: { role: all }": {"all", "worker"}} {
		made := release(t, "workers-values.yaml", more)
		deployments, policies := all[apps.Deployment](made), all[networking.NetworkPolicy](made)
		if len(deployments) != 2 || len(policies) != 2 {
			t.Fatalf("%d deployments, %d policies", len(deployments), len(policies))
		}
		for i, d := range deployments {
			pod := d.Spec.Template.Spec
			c := pod.Containers[0]
			role := ""
			for _, e := range c.Env {
				if e.Name == "CLUSTER_ROLE" {
					role = e.Value
				}
			}
			replicas := 0 // the autoscaler decides
			if d.Spec.Replicas != nil {
				replicas = int(*d.Spec.Replicas)
			}
			got := fmt.Sprintln(d.Name, replicas, role, c.Image, c.Resources.Requests.Cpu(), c.Resources.Requests.Memory(), pod.NodeSelector)
			want := []string{
				fmt.Sprintln("rel-mcp-bridge", 2, roles[0], "mcp-bridge:"+load(t, folder).Metadata.AppVersion, "100m", "128Mi", "map[]"),
				fmt.Sprintln("rel-mcp-bridge-worker", 0, roles[1], "registry.example.com/mcp-bridge-node:1", "0", "4Gi", "map[pool:browsers]"),
			}[i]
			if got != want {
				t.Errorf("%q: %s want %s", more, got, want)
			}
		}
		if text := all[core.ConfigMap](made)[0].Data["bridge.yaml"]; !strings.Contains(text, "role: ${CLUSTER_ROLE}\n") {
			t.Errorf("%q: the configuration is\n%s", more, text)
		}
		// Each instance reaches each other one, at the port for instances.
		admits := func(peers []networking.NetworkPolicyPeer, labels map[string]string) bool {
			return slices.ContainsFunc(peers, func(p networking.NetworkPolicyPeer) bool {
				return p.PodSelector != nil && matches(p.PodSelector.MatchLabels, labels)
			})
		}
		for _, p := range policies {
			for _, d := range deployments {
				in, out := false, false
				for _, r := range p.Spec.Ingress {
					in = in || r.Ports[0].Port.StrVal == "cluster" && admits(r.From, d.Spec.Template.Labels)
				}
				for _, r := range p.Spec.Egress {
					out = out || r.Ports[0].Port.StrVal == "cluster" && admits(r.To, d.Spec.Template.Labels)
				}
				if !in || !out {
					t.Errorf("%s: %s comes in: %v, is reached: %v", p.Name, d.Name, in, out)
				}
			}
		}
		if n := len(all[policy.PodDisruptionBudget](made)); n != 2 {
			t.Errorf("%d budgets", n)
		}
		// Prometheus scrapes both in the same way.
		services, pods := all[monitoring.ServiceMonitor](made), all[monitoring.PodMonitor](made)
		if len(services) != 1 || len(pods) != 1 {
			t.Fatalf("%d and %d monitors", len(services), len(pods))
		}
		a, b := services[0].Spec.Endpoints[0], pods[0].Spec.PodMetricsEndpoints[0]
		if a.Path != "/metrics" || b.Path != a.Path || b.Interval != a.Interval || *b.Port != a.Port || a.Authorization.Credentials.Name != "mcp-keys" || *b.Authorization.Credentials != *a.Authorization.Credentials {
			t.Errorf("the Service is asked with %+v, the workers with %+v", a, b)
		}
		scaled := all[autoscaling.HorizontalPodAutoscaler](made)
		if len(scaled) != 1 || scaled[0].Spec.ScaleTargetRef.Name != "rel-mcp-bridge-worker" || len(scaled[0].Spec.Metrics) != 1 || scaled[0].Spec.Metrics[0].Pods.Metric.Name != "mcp_bridge_cluster_worker_children" || *scaled[0].Spec.MinReplicas != 3 {
			t.Errorf("the autoscalers are %+v", scaled)
		}
		both := all[autoscaling.HorizontalPodAutoscaler](release(t, "workers-values.yaml", more+"\nautoscaling: { enabled: true }\nworkers: { autoscaling: { targetCPU: 50 } }"))
		if len(both) != 2 || len(both[0].Spec.Metrics) != 1 || len(both[1].Spec.Metrics) != 2 || *both[1].Spec.Metrics[0].Resource.Target.AverageUtilization != 50 {
			t.Errorf("the autoscalers are %+v", both)
		}
		fixed := release(t, "workers-values.yaml", more+"\nworkers: { replicas: 4, autoscaling: { enabled: false } }")
		if d := all[apps.Deployment](fixed)[1]; d.Spec.Replicas == nil || *d.Spec.Replicas != 4 || len(all[autoscaling.HorizontalPodAutoscaler](fixed)) != 0 {
			t.Errorf("without an autoscaler there are %v workers", d.Spec.Replicas)
		}
	}
	if made := release(t, "full-values.yaml", "cluster: { role: front }"); !strings.Contains(all[core.ConfigMap](made)[0].Data["bridge.yaml"], "role: front\n") {
		t.Error("cluster.role alone has no effect")
	}
}

// Broken charts are detected: a template is changed, and a check names the fault (O-091).
func TestBroken(t *testing.T) {
	for _, tc := range []struct{ template, from, to, want string }{
		{"service.yaml", `{{- include "mcp-bridge.selector" . | nindent 4 }}`, "{ app: other }", "does not select the pods"},
		{"service.yaml", "targetPort: mcp", "targetPort: http", "no port http"},
		{"service.yaml", "sessionAffinity:", "sessionsAffinity:", `unknown field "sessionsAffinity"`},
		{"deployment.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "token of the service account"},
		{"deployment.yaml", "securityContext: {{- toYaml .Values.podSecurityContext | nindent 8 }}", "", "may run as root"},
		{"_helpers.tpl", "/healthz", "/alive", "liveness"},
		{"_helpers.tpl", "httpHeaders: [{ name: Host, value: localhost }]", "", "probe"},
		{"_helpers.tpl", `"${CLUSTER_SECRET}"`, `"of-everybody"`, "looks like a secret"},
		{"_helpers.tpl", "- { name: tmp, mountPath: /tmp }", "- { name: temp, mountPath: /tmp }", "no volume"},
		{"_helpers.tpl", "- { name: tmp, mountPath: /tmp }", "- { name: tmp, mountPath: /var/tmp }", "no folder /tmp"},
		{"_helpers.tpl", "- --log-format=", "- --log-level=info\n    - --log-format=", "log_level of the file never counts"},
		{"networkpolicy.yaml", "port: mcp", "port: http", "which no pod has"},
		{"networkpolicy.yaml", `{{- concat ($p.from | default (list (dict "podSelector" dict))) $p.metricsFrom | toYaml | nindent 8 }}`, "[]", "lets everybody in"},
		{"pdb.yaml", `{{- include "mcp-bridge.selector" . | nindent 6 }}`, "{ app: other }", "PodDisruptionBudget does not select"},
		{"servicemonitor.yaml", `{{- include "mcp-bridge.selector" . | nindent 6 }}`, "{ app: other }", "selects 0 services"},
		{"hpa.yaml", "kind: Deployment, name: {{ .name }}", "kind: Deployment, name: x", "scales x"},
		{"hpa.yaml", `(printf "%s-worker" $name)`, "$name", "scales rel-mcp-bridge,"},
		{"deployment.yaml", `{{- $_ := set $v "autoscaling" .Values.workers.autoscaling }}`, "", "says replicas itself"},
		{"servicemonitor.yaml", `{{- include "mcp-bridge.workers" (dict "labels" "mcp-bridge.selector" "root" .) | nindent 6 }}`, "{ app: other }", "PodMonitor rel-mcp-bridge-worker does not select"},
		{"servicemonitor.yaml", `{{- include "mcp-bridge.workers" (dict "labels" "mcp-bridge.selector" "root" .) | nindent 6 }}`, `{{- include "mcp-bridge.selector" . | nindent 6 }}`, "PodMonitor rel-mcp-bridge-worker does not select"},
		{"servicemonitor.yaml", "{{- if .Values.workers.enabled }}", "{{- if false }}", "2 deployments, and 0"},
		{"servicemonitor.yaml", "podMetricsEndpoints:", "endpoints:", `unknown field "endpoints"`},
		{"servicemonitor.yaml", "- port: mcp", "- port: http", "names a port that no pod has"},
		{"ingress.yaml", "name: {{ $name }}, port", "name: x, port", "Ingress leads to x"},
		{"httproute.yaml", "backendRefs: [{ name: {{ include \"mcp-bridge.name\" . }}", "backendRefs: [{ name: x", "HTTPRoute leads to x"},
		{"mcpserver.yaml", "port: mcp", "port: http", "MCPServer"},
		{"mcpserver.yaml", "pollInterval:", "poll:", `unknown field "poll"`},
		{"prometheusrule.yaml", `nindent 2`, "nindent 0", `unknown field "groups"`},
	} {
		c := load(t, folder)
		changed := false
		change(c, tc.template, func(text []byte) []byte {
			now := bytes.ReplaceAll(text, []byte(tc.from), []byte(tc.to))
			changed = !bytes.Equal(now, text)
			return now
		})
		if !changed {
			t.Errorf("%s has no %s", tc.template, tc.from)
			continue
		}
		said := ""
		for _, file := range []string{"full-values.yaml", "workers-values.yaml"} {
			made, err := objects(t, c, values(t, file, ""))
			if err != nil {
				said += fmt.Sprintln(err)
				continue
			}
			said += strings.Join(faults(made), "\n")
		}
		if !strings.Contains(said, tc.want) {
			t.Errorf("%s with %q: said is %q, want %q", tc.template, tc.to, said, tc.want)
		}
	}
}

// The pod has enough time to stop.
func TestGrace(t *testing.T) {
	for more, want := range map[string]int64{"": 35, "drain: 60": 85, "preStopSleep: 0": 30,
		"cluster: { enabled: true, redis: { existingSecret: r }, secret: { existingSecret: s } }":                         35,
		"cluster: { enabled: true, redis: { existingSecret: r }, secret: { existingSecret: s }, config: { lease: 20s } }": 40,
		"cluster: { enabled: true, redis: { existingSecret: r }, secret: { existingSecret: s }, config: { lease: 1m } }":  80,
	} {
		d := all[apps.Deployment](release(t, "minimal-values.yaml", more))[0]
		if got := *d.Spec.Template.Spec.TerminationGracePeriodSeconds; got != want {
			t.Errorf("%q: %d seconds, want %d", more, got, want)
		}
	}
}

// documented returns the values in docs/install.md.
func documented(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "```yaml\n# values.yaml\n")
	text, _, end := strings.Cut(text, "\n```\n")
	if !ok || !end {
		t.Fatal("docs/install.md has no values")
	}
	return text
}

// The documented values render objects that fit each other.
func TestDocs(t *testing.T) {
	for _, fault := range faults(release(t, "", documented(t))) {
		t.Error(fault)
	}
}
