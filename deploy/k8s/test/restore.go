package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warrenmq/warren/deploy/k8s/test/rig"
)

const restoreManifests = "deploy/k8s/test/restore"

// restore takes a backup, deletes the pods with their volumes, and lets a new cluster begin from it by the overlay's init container; then that is taken out
// again. Queues, messages and users are what they were. Clients are away meanwhile: what they would be told after the backup is gone with the volumes.
func (t *test) restore(ctx context.Context) error {
	if _, err := t.ctl(ctx, "warren-0", "enable_feature_flag", "all"); err != nil { // it has them, unless this is the only scenario
		return err
	}
	if err := t.onChannel(ctx, func(ch *amqp.Channel) error { return fill(ctx, ch) }); err != nil {
		return err
	}
	before, err := t.state(ctx)
	if err != nil {
		return err
	}
	backup, err := t.ctl(ctx, "warren-1", "backup", "--output", "-")
	if err != nil {
		return err
	}
	t.log.Info("backup", "bytes", len(backup))
	dir, err := t.rig.Claim(ctx, "warren-backup")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.backup"), []byte(backup), 0o644); err != nil {
		return err
	}
	if err := t.deleteAll(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := t.rig.Apply(ctx, restoreManifests, nil); err != nil {
		return err
	}
	if err := t.rig.Ready(ctx, set, readyWait); err != nil {
		return err
	}
	t.log.Info("restored", "pods", 3, "seconds", int(time.Since(began).Seconds()))
	if err := t.sameState(ctx, before); err != nil {
		return err
	}
	if err := t.rig.Apply(ctx, t.manifests, nil); err != nil {
		return err
	}
	if err := t.rig.Ready(ctx, set, 2*readyWait); err != nil {
		return err
	}
	if err := t.sameState(ctx, before); err != nil {
		return fmt.Errorf("without the init container: %w", err)
	}
	return t.onChannel(ctx, empty)
}

// deleteAll deletes the StatefulSet, and the volumes of its pods.
func (t *test) deleteAll(ctx context.Context) error {
	if err := t.rig.Client.AppsV1().StatefulSets(rig.Namespace).Delete(ctx, set, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err := t.rig.Until(ctx, readyWait, func(ctx context.Context) error {
		pods, err := t.rig.UIDs(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods are there", len(pods))
		}
		return err
	})
	if err != nil {
		return err
	}
	claims := t.rig.Client.CoreV1().PersistentVolumeClaims(rig.Namespace)
	var names []string
	for _, pod := range []string{"warren-0", "warren-1", "warren-2"} {
		names = append(names, "data-"+pod)
		if err := claims.Delete(ctx, "data-"+pod, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return t.rig.Until(ctx, readyWait, func(ctx context.Context) error {
		for _, name := range names {
			if _, err := claims.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return errors.Join(err, fmt.Errorf("%s is there", name))
			}
		}
		return nil
	})
}

// state is what a cluster has, as text: its users, and its queues with their messages.
func (t *test) state(ctx context.Context) (string, error) {
	var all []string
	for _, args := range [][]string{{"list_users", "--silent"}, {"list_queues", "--silent", "name", "messages", "durable", "arguments"}} {
		out, err := t.ctl(ctx, "warren-0", args...)
		if err != nil {
			return "", err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		slices.Sort(lines)
		all = append(all, lines...)
	}
	return strings.Join(all, "\n"), nil
}

func (t *test) sameState(ctx context.Context, before string) error {
	return t.rig.Until(ctx, settleWait, func(ctx context.Context) error {
		now, err := t.state(ctx)
		if err == nil && now != before {
			err = fmt.Errorf("the cluster has\n%s\nand had\n%s", now, before)
		}
		return err
	})
}
