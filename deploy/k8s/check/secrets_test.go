package check

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/warrenmq/warren/certs"
)

// secretsOf returns the Secrets of manifests by name.
func secretsOf(t *testing.T, text []byte) map[string]*corev1.Secret {
	t.Helper()
	m, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*corev1.Secret{}
	for _, s := range m.Secrets {
		all[s.Name] = s
	}
	return all
}

// usable checks that nodes can use the Secrets: the certificate is read by the broker's own package.
func usable(t *testing.T, secrets map[string]*corev1.Secret, user string) {
	t.Helper()
	if names := slices.Sorted(maps.Keys(secrets)); !slices.Equal(names, []string{"warren-cluster-tls", "warren-default-user", "warren-gossip"}) {
		t.Fatalf("Secrets %q", names)
	}
	if s := secrets["warren-default-user"]; s.Type != corev1.SecretTypeBasicAuth || string(s.Data["username"]) != user || len(s.Data["password"]) < 32 || strings.ContainsAny(string(s.Data["password"]), "\r\n") {
		t.Errorf("user %q of type %s with a password of %d bytes", s.Data["username"], s.Type, len(s.Data["password"]))
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(secrets["warren-gossip"].Data["keys"])))
	if err != nil || len(key) != 32 {
		t.Errorf("a key of gossip of %d bytes, %v", len(key), err)
	}
	dir := t.TempDir()
	tls := secrets["warren-cluster-tls"]
	for name, data := range tls.Data {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := certs.Open(certs.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")},
		certs.Options{Use: "nodes", Name: "warren-node", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Close(); err != nil {
		t.Error(err)
	}
	if tls.Type != corev1.SecretTypeTLS {
		t.Errorf("the nodes' certificate is in a Secret of type %s", tls.Type)
	}
}

// The chart makes what is not named, other content each time.
func TestChartMakesSecrets(t *testing.T) {
	var before map[string]*corev1.Secret
	for range 2 {
		text, err := Chart(filepath.Join(root, "chart"), "", "")
		if err != nil {
			t.Fatal(err)
		}
		now := secretsOf(t, text)
		usable(t, now, "admin")
		for name, s := range now {
			if s.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s goes with the release", name)
			}
			for k, v := range s.Data {
				if before != nil && bytes.Equal(v, before[name].Data[k]) && k != "username" {
					t.Errorf("%s of %s is the same for everybody", k, name)
				}
			}
		}
		before = now
	}
	for name, values := range map[string]string{"named": ownSecrets, "off": "auth: {username: ''}\ngossip: {encryption: 'off'}\ntls: {cluster: {mode: 'off'}}"} {
		text, err := Chart(filepath.Join(root, "chart"), values, "")
		if err != nil {
			t.Fatal(err)
		}
		if made := secretsOf(t, text); len(made) > 0 {
			t.Errorf("%s: %d Secrets", name, len(made))
		}
		if off := !bytes.Contains(text, []byte("WARREN_DEFAULT_USER")) && !bytes.Contains(text, []byte("WARREN_GOSSIP_ENC")) && !bytes.Contains(text, []byte("WARREN_CLUSTER_TLS")); off != (name == "off") {
			t.Errorf("%s: all is off: %t", name, off)
		}
	}
}

// lookup answers the chart's questions from objects, as an API server does.
type lookup struct{ client dynamic.Interface }

func (l lookup) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return l.client.Resource(schema.GroupVersionResource{Version: apiVersion, Resource: strings.ToLower(kind) + "s"}), true, nil
}

// What is in the cluster stays over an upgrade, also what an operator has added in a rotation.
func TestChartKeepsSecrets(t *testing.T) {
	data := map[string]map[string][]byte{
		"warren-default-user": {"username": []byte("boss"), "password": []byte("once")},
		"warren-gossip":       {"keys": []byte("new\nold\n")},
		"warren-cluster-tls":  {"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("a"), "more": []byte("m")},
	}
	var objects []runtime.Object
	for name, d := range data {
		objects = append(objects, &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: d})
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, all, err := load(filepath.Join(root, "chart"), "")
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.RenderWithClientProvider(c, all, lookup{fake.NewSimpleDynamicClient(scheme, objects...)})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range secretsOf(t, documents(files, "secrets.yaml")) {
		if !maps.EqualFunc(s.Data, data[name], bytes.Equal) {
			t.Errorf("%s has %q, had %q", name, s.Data, data[name])
		}
		delete(data, name)
	}
	if len(data) > 0 {
		t.Errorf("missing: %q", data)
	}
}

// secrets.sh makes what the manifests for kustomize name.
func TestSecretsScript(t *testing.T) {
	var made [][]byte
	for _, args := range [][]string{nil, {"boss"}} {
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "secrets.sh"), args...)
		cmd.Stderr = &errs
		text, err := cmd.Output()
		if err != nil || errs.Len() > 0 {
			t.Fatalf("%v: %s", err, &errs)
		}
		secrets := secretsOf(t, text)
		usable(t, secrets, append(args, "admin")[0])
		made = append(made, secrets["warren-default-user"].Data["password"])
	}
	if bytes.Equal(made[0], made[1]) {
		t.Error("everybody has the same password")
	}
	base, err := Kustomize(filepath.Join(root, "base"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode(base)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, v := range m.Sets[0].Spec.Template.Spec.Volumes {
		if v.Secret != nil {
			named = append(named, v.Secret.SecretName)
		}
	}
	if slices.Sort(named); !slices.Equal(named, []string{"warren-cluster-tls", "warren-default-user", "warren-gossip"}) {
		t.Errorf("the base names %q", named)
	}
}

// The notes that Helm prints say how to read the first password, if there is one.
func TestNotes(t *testing.T) {
	for values, want := range map[string]string{
		"":                             "get secret warren-default-user -o jsonpath='{.data.password}' | base64 -d",
		"auth: {username: ''}":         "begins with guest",
		"auth: {existingSecret: mine}": "get secret mine -o",
		"restore: {volume: {nfs: {server: s, path: /p}}}": "upgrade without the values under restore",
		"zones: [{name: a, zone: z, replicas: 2}]":        "exec warren-a-0 -- /warren ctl --local",
	} {
		c, all, err := load(filepath.Join(root, "chart"), values)
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.Engine{Strict: true}.Render(c, all)
		if err != nil {
			t.Fatal(err)
		}
		if notes := files["warren/templates/NOTES.txt"]; !strings.Contains(notes, want) {
			t.Errorf("%s: %q is missing in\n%s", values, want, notes)
		}
	}
}
