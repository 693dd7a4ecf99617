package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/warrenmq/warren/deploy/k8s/test/load"
	"github.com/warrenmq/warren/deploy/k8s/test/rig"
)

// Names in the manifests.
const (
	set       = "warren"
	container = "warren"
)

// Bounds of the test's waiting. They are far above what a free machine takes.
const (
	readyWait  = 5 * time.Minute
	settleWait = 3 * time.Minute
)

type test struct {
	rig       *rig.Rig
	log       *slog.Logger
	manifests string
	secrets   string // the program that prints Secrets
	// helmProgram is package check/render: what an upgrade by Helm would apply.
	helmProgram string
	only        []string // scenarios; empty: all
	load        *load.Load
	tls         *security

	user, password string // the default user, as the cluster has it
}

// scenarios are all there are, in their order.
var scenarios = []struct {
	name string
	do   func(*test, context.Context) error
}{
	{"publish", (*test).steady},
	{"upgrade", (*test).upgrade},
	{"user", (*test).defaultUser},
	{"gossip", (*test).gossipKeys},
	{"certificate", (*test).certificate},
	{"rollout", (*test).rollout},
	{"delete", func(t *test, ctx context.Context) error { return t.deletePod(ctx, "warren-1", nil) }},
	{"kill", func(t *test, ctx context.Context) error { now := int64(0); return t.deletePod(ctx, "warren-2", &now) }},
	{"evict", (*test).evict},
	{"config", (*test).config},
	{"volume", (*test).volume},
	{"scale", (*test).scale},
	{"helm", (*test).helm},
	{restoreName, (*test).steady},
}

// restoreName is the scenario in which the cluster is made anew before clients come.
const restoreName = "restore"

// choose returns the scenarios of a list with commas.
func choose(list string) (names []string, err error) {
	for name := range strings.SplitSeq(list, ",") {
		known := false
		for _, s := range scenarios {
			known = known || s.name == name
		}
		if !known {
			return nil, fmt.Errorf("there is no scenario %q", name)
		}
		names = append(names, name)
	}
	return names, nil
}

func (t *test) chosen(name string) bool { return len(t.only) == 0 || slices.Contains(t.only, name) }

func (t *test) run(ctx context.Context) error {
	if err := t.firstStart(ctx); err != nil {
		return fmt.Errorf("first start: %w", err)
	}
	for _, s := range scenarios {
		if !t.chosen(s.name) {
			continue
		}
		if s.name == restoreName {
			if err := t.restore(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		if err := t.scenario(ctx, s.name, func(ctx context.Context) error { return s.do(t, ctx) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// scenario does one thing to the cluster while clients work, and reads the ledger.
func (t *test) scenario(ctx context.Context, name string, do func(context.Context) error) error {
	cfg, err := t.client(ctx)
	if err != nil {
		return err
	}
	if t.load, err = load.Start(ctx, cfg); err != nil {
		return err
	}
	began := time.Now()
	failed := do(ctx)
	longest, links := t.load.Reset()
	result := t.load.Finish(settleWait)
	if late, _ := t.load.Reset(); late.Total > longest.Total {
		longest = late
	}
	t.log.Info("scenario", "name", name, "seconds", int(time.Since(began).Seconds()), "published", result.Published, "again", result.Again,
		"dead-lettered", result.DeadLettered, "lost", result.Lost, "doubled-dead-letters", result.DoubledDead, "doubled-work", result.DoubledWork,
		"longest-confirm-ms", longest.Total.Milliseconds(), "connections-lost", links, "longest", longest)
	return errors.Join(failed, result.Err())
}

// client says how clients come: through the Service, as the default user.
func (t *test) client(ctx context.Context) (load.Config, error) {
	service, err := t.rig.Client.CoreV1().Services(rig.Namespace).Get(ctx, set, metav1.GetOptions{})
	if err != nil {
		return load.Config{}, err
	}
	at := url.URL{Scheme: "amqp", User: url.UserPassword(t.user, t.password), Host: service.Spec.ClusterIP + ":5672", Path: "/"}
	cfg := load.Config{Publishers: 4, Rate: 100, Workers: 2}
	if t.tls.clients != nil {
		at.Scheme, at.Host = "amqps", service.Spec.ClusterIP+":"+portAMQPS
		cfg.TLS = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: nameClients}
		cfg.TLS.RootCAs.AddCert(t.tls.clients.cert)
	}
	cfg.URL = at.String()
	return cfg, nil
}

// firstStart makes the Secrets, applies the manifests and waits for three pods that found one cluster. If it is to be upgraded, they
// run the version before.
func (t *test) firstStart(ctx context.Context) error {
	began := time.Now()
	if err := t.makeSecrets(ctx); err != nil {
		return err
	}
	edit := func(object []byte) []byte { return object }
	if t.chosen("upgrade") {
		edit = func(object []byte) []byte {
			return bytes.ReplaceAll(object, []byte(`"`+imageNow+`"`), []byte(`"`+imageBefore+`"`))
		}
	}
	if err := t.rig.Apply(ctx, t.manifests, edit); err != nil {
		return err
	}
	if err := t.rig.Ready(ctx, set, readyWait); err != nil {
		return err
	}
	t.log.Info("first start", "pods", 3, "seconds", int(time.Since(began).Seconds()))
	return nil
}

// ctl runs `warren ctl --local` in a pod.
func (t *test) ctl(ctx context.Context, pod string, args ...string) (string, error) {
	return t.rig.Exec(ctx, pod, container, append([]string{"/warren", "ctl", "--local"}, args...)...)
}

// steady lets the clients work.
func (t *test) steady(ctx context.Context) error { return sleep(ctx, 15*time.Second) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// rollout is `kubectl rollout restart statefulset/warren`.
func (t *test) rollout(ctx context.Context) error {
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().Format(time.RFC3339Nano))
	_, err := t.rig.Client.AppsV1().StatefulSets(rig.Namespace).Patch(ctx, set, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return t.rig.Ready(ctx, set, 2*readyWait)
}

// deletePod deletes a pod, with its own grace or another, and waits for its successor.
func (t *test) deletePod(ctx context.Context, name string, grace *int64) error {
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := t.rig.Client.CoreV1().Pods(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: grace}); err != nil {
		return err
	}
	if err := t.notReady(ctx); err != nil {
		return err
	}
	return t.rig.Ready(ctx, set, readyWait)
}

// notReady waits until the StatefulSet's status shows that a pod is gone.
func (t *test) notReady(ctx context.Context) error {
	return t.rig.Until(ctx, readyWait, func(ctx context.Context) error {
		s, err := t.rig.Client.AppsV1().StatefulSets(rig.Namespace).Get(ctx, set, metav1.GetOptions{})
		if err == nil && s.Status.ReadyReplicas == *s.Spec.Replicas {
			err = errors.New("all pods are still ready")
		}
		return err
	})
}

// evict evicts two pods at once: the budget lets one go.
func (t *test) evict(ctx context.Context) error {
	evict := func(pod string) error {
		return t.rig.Client.PolicyV1().Evictions(rig.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: rig.Namespace}})
	}
	err := t.rig.Until(ctx, time.Minute, func(ctx context.Context) error {
		b, err := t.rig.Client.PolicyV1().PodDisruptionBudgets(rig.Namespace).Get(ctx, set, metav1.GetOptions{})
		if err == nil && b.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("%d disruptions are allowed", b.Status.DisruptionsAllowed)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := evict("warren-0"); err != nil {
		return err
	}
	if err := evict("warren-1"); !apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("the second eviction is answered %v, not 429", err)
	}
	t.log.Info("evictions", "first", "done", "second", "429")
	if err := t.notReady(ctx); err != nil {
		return err
	}
	return t.rig.Ready(ctx, set, readyWait)
}

// config changes a setting and restarts the pods, which have it then.
func (t *test) config(ctx context.Context) error {
	patch := `{"data":{"warren.yaml":"log-format: json\nlog-level: debug\n"}}`
	if _, err := t.rig.Client.CoreV1().ConfigMaps(rig.Namespace).Patch(ctx, set, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := t.rollout(ctx); err != nil {
		return err
	}
	for _, pod := range []string{"warren-0", "warren-1", "warren-2"} {
		text, err := t.rig.Logs(ctx, pod)
		if err != nil {
			return err
		}
		if !strings.Contains(text, `"level":"DEBUG"`) {
			return fmt.Errorf("%s does not log at its new level", pod)
		}
	}
	return nil
}

// volume loses a pod's volume: it comes back with another, empty one, and its replicas are filled again.
func (t *test) volume(ctx context.Context) error {
	const pod, claim = "warren-1", "data-warren-1"
	claims := t.rig.Client.CoreV1().PersistentVolumeClaims(rig.Namespace)
	before, err := claims.Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := claims.Delete(ctx, claim, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := t.deletePod(ctx, pod, nil); err != nil {
		return err
	}
	after, err := claims.Get(ctx, claim, metav1.GetOptions{})
	if err == nil && after.Spec.VolumeName == before.Spec.VolumeName {
		err = fmt.Errorf("%s still has %s", claim, after.Spec.VolumeName)
	}
	if err != nil {
		return err
	}
	return t.whole(ctx, "warren-0", "warren-1", "warren-2")
}
