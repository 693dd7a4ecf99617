package check

import (
	"errors"
	"fmt"
	"slices"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Manifests are the objects of one rendering.
type Manifests struct {
	Sets     []*appsv1.StatefulSet
	Services []*corev1.Service
	Configs  []*corev1.ConfigMap
	Secrets  []*corev1.Secret
	Budgets  []*policyv1.PodDisruptionBudget
	Policies []*networkingv1.NetworkPolicy
	Monitors []*monitoringv1.ServiceMonitor
	Alerts   []*monitoringv1.PrometheusRule
}

// Decode reads a YAML stream. Kinds that are not expected, fields that the kind does not have and keys that stand
// there twice are errors; all are told, not only the first.
func Decode(stream []byte) (*Manifests, error) {
	docs, err := Split(stream)
	if err != nil {
		return nil, err
	}
	m := &Manifests{}
	var problems []error
	for i, doc := range docs {
		var head struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &head); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		object, keep := m.target(head.GroupVersionKind().String())
		if object == nil {
			problems = append(problems, fmt.Errorf("document %d: %s %q is of no kind that is expected here", i+1, head.GroupVersionKind(), head.Name))
			continue
		}
		strict, err := kjson.UnmarshalStrict(doc, object)
		for _, err := range append(slices.Clip(strict), err) {
			if err != nil {
				problems = append(problems, fmt.Errorf("%s %q: %w", head.Kind, head.Name, err))
			}
		}
		keep()
	}
	return m, errors.Join(problems...)
}

// target returns a new object of the kind and what puts it into m.
func (m *Manifests) target(kind string) (object any, keep func()) {
	switch kind {
	case "apps/v1, Kind=StatefulSet":
		return into(&m.Sets)
	case "/v1, Kind=Service":
		return into(&m.Services)
	case "/v1, Kind=ConfigMap":
		return into(&m.Configs)
	case "/v1, Kind=Secret":
		return into(&m.Secrets)
	case "policy/v1, Kind=PodDisruptionBudget":
		return into(&m.Budgets)
	case "networking.k8s.io/v1, Kind=NetworkPolicy":
		return into(&m.Policies)
	case "monitoring.coreos.com/v1, Kind=ServiceMonitor":
		return into(&m.Monitors)
	case "monitoring.coreos.com/v1, Kind=PrometheusRule":
		return into(&m.Alerts)
	}
	return nil, nil
}

func into[T any](list *[]*T) (any, func()) {
	object := new(T)
	return object, func() { *list = append(*list, object) }
}
