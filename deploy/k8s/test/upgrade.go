package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/warrenmq/warren/deploy/k8s/test/rig"
)

// flagNow is the newest level's name.
const flagNow = "managed_membership"

// upgrade takes the pods from the version before to this one, one after the other, and then the cluster to its level.
func (t *test) upgrade(ctx context.Context) error {
	if err := t.level(ctx, ""); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, container, imageNow)
	if _, err := t.rig.Client.AppsV1().StatefulSets(rig.Namespace).Patch(ctx, set, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := t.rig.Ready(ctx, set, 2*readyWait); err != nil {
		return err
	}
	if err := t.level(ctx, "disabled"); err != nil {
		return fmt.Errorf("with the new program on all pods: %w", err)
	}
	if _, err := t.ctl(ctx, "warren-0", "enable_feature_flag", "all"); err != nil {
		return err
	}
	return t.level(ctx, "enabled")
}

// level fails unless all pods say so of the newest level, "" if they do not know it.
func (t *test) level(ctx context.Context, want string) error {
	for _, pod := range []string{"warren-0", "warren-1", "warren-2"} {
		out, err := t.ctl(ctx, pod, "list_feature_flags", "--silent", "name", "state")
		if err != nil {
			return err
		}
		state := ""
		for line := range strings.Lines(out) {
			if name, s, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && name == flagNow {
				state = s
			}
		}
		if state != want {
			return fmt.Errorf("%s: %s is %q, want %q", pod, flagNow, state, want)
		}
	}
	t.log.Info("level", "name", flagNow, "state", want)
	return nil
}
