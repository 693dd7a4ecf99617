package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/warrenmq/warren/deploy/k8s/test/rig"
)

// helmValues make the chart what test/manifests are.
const helmValues = `
resources:
  requests: {cpu: 100m, memory: 1Gi}
  limits: {memory: 1Gi}
`

// helm renders the chart as `helm upgrade` does, with its questions answered by the API server, and applies it over what kustomize has made: the Secrets are kept, and
// no pod is restarted, since both come from one source.
func (t *test) helm(ctx context.Context) error {
	pods, err := t.rig.UIDs(ctx)
	if err != nil {
		return err
	}
	kept, err := t.secretData(ctx)
	if err != nil {
		return err
	}
	objects, err := t.renderChart(ctx)
	if err != nil {
		return err
	}
	secrets := 0
	for _, object := range objects {
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(object, &head); err != nil {
			return err
		}
		if head.Kind == "Secret" {
			secrets++
			var s corev1.Secret
			if err := yaml.UnmarshalStrict(object, &s); err != nil {
				return err
			}
			if !maps.EqualFunc(s.Data, kept[s.Name], bytes.Equal) {
				return fmt.Errorf("Secret %s is made anew", s.Name)
			}
		}
	}
	if secrets != 3 {
		return fmt.Errorf("the chart has %d Secrets", secrets)
	}
	if err := t.rig.ApplyObjects(ctx, objects); err != nil {
		return err
	}
	if err := t.rig.Ready(ctx, set, readyWait); err != nil {
		return err
	}
	after, err := t.secretData(ctx)
	if err == nil && !maps.EqualFunc(kept, after, func(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }) {
		err = errors.New("Secrets have changed")
	}
	if err != nil {
		return err
	}
	t.log.Info("applied the chart", "objects", len(objects), "secrets-kept", secrets)
	return t.same(ctx, pods)
}

// renderChart returns the chart's objects for the release that is there. A program of another module does it, because Helm wants other versions than Kubernetes.
func (t *test) renderChart(ctx context.Context) (objects [][]byte, err error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, t.helmProgram, "-server", t.rig.REST.Host, "-values", helmValues, "deploy/k8s")
	cmd.Env, cmd.Stderr = append(os.Environ(), "KUBE_TOKEN="+t.rig.REST.BearerToken), &errs
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w: %s", err, &errs)
	}
	for doc := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---")) {
		if object, err := yaml.YAMLToJSONStrict(doc); err != nil {
			return nil, err
		} else if string(object) != "null" {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// secretData is what the cluster has in its Secrets.
func (t *test) secretData(ctx context.Context) (map[string]map[string][]byte, error) {
	list, err := t.rig.Client.CoreV1().Secrets(rig.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]map[string][]byte{}
	for _, s := range list.Items {
		all[s.Name] = s.Data
	}
	return all, nil
}
