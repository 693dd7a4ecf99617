package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/warrenmq/warren/deploy/k8s/test/load"
	"github.com/warrenmq/warren/deploy/k8s/test/rig"
)

// makeSecrets makes what the manifests name: what secrets.sh prints, but for certificates, which come from the test's own authorities so
// that it can replace them.
func (t *test) makeSecrets(ctx context.Context) error {
	printed, err := exec.CommandContext(ctx, t.secrets).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", t.secrets, err)
	}
	for doc := range bytes.SplitSeq(printed, []byte("\n---\n")) {
		var s corev1.Secret
		if err := yaml.UnmarshalStrict(doc, &s); err != nil {
			return fmt.Errorf("%s: %w", t.secrets, err)
		}
		if s.Name == secretUser {
			t.user, t.password = string(s.Data["username"]), string(s.Data["password"])
		}
		if err := t.secret(ctx, s.Name, s.Type, s.Data); err != nil {
			return err
		}
	}
	_, err = t.certificates(ctx)
	return err
}

// defaultUser shows that the user of the Secret is there, an administrator, and guest is not; that another password in the Secret
// changes nothing; and gives the cluster that password.
func (t *test) defaultUser(ctx context.Context) error {
	if users, err := t.ctl(ctx, "warren-1", "list_users", "--silent"); err != nil || strings.TrimSpace(users) != t.user+"\t[administrator]" {
		return fmt.Errorf("users %q, %w", users, err)
	}
	cfg, err := t.client(ctx)
	if err != nil {
		return err
	}
	guest := *t
	guest.user, guest.password = "guest", "guest"
	if stranger, err := guest.client(ctx); err != nil {
		return err
	} else if err := login(stranger); !errors.Is(err, amqp.ErrCredentials) {
		return fmt.Errorf("guest: %w", err)
	}
	next := rand.Text()
	if err := t.secret(ctx, secretUser, corev1.SecretTypeBasicAuth, map[string][]byte{"username": []byte(t.user), "password": []byte(next)}); err != nil {
		return err
	}
	if err := t.deletePod(ctx, "warren-0", nil); err != nil { // it starts with the new one
		return err
	}
	if err := login(cfg); err != nil {
		return fmt.Errorf("after another password is in the Secret: %w", err)
	}
	if _, err := t.ctl(ctx, "warren-2", "change_password", t.user, next); err != nil {
		return err
	}
	t.password = next
	if cfg, err = t.client(ctx); err != nil {
		return err
	}
	return login(cfg)
}

// login opens and ends a connection.
func login(cfg load.Config) error {
	conn, err := amqp.DialTLS(cfg.URL, cfg.TLS)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// gossipKeys takes a new key of gossip into use in three steps, without a restart.
func (t *test) gossipKeys(ctx context.Context) error {
	before, err := t.rig.UIDs(ctx)
	if err != nil {
		return err
	}
	s, err := t.rig.Client.CoreV1().Secrets(rig.Namespace).Get(ctx, secretGossip, metav1.GetOptions{})
	if err != nil {
		return err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	old, next := strings.TrimSpace(string(s.Data["keys"])), base64.StdEncoding.EncodeToString(key)
	first, err := t.fingerprints(ctx, 1, "")
	if err != nil {
		return err
	}
	last := first
	for _, keys := range [][]string{{old, next}, {next, old}, {next}} {
		if err := t.secret(ctx, secretGossip, corev1.SecretTypeOpaque, map[string][]byte{"keys": []byte(strings.Join(keys, "\n") + "\n")}); err != nil {
			return err
		}
		if last, err = t.fingerprints(ctx, len(keys), last); err != nil {
			return err
		}
		t.log.Info("gossip keys", "keys", last)
	}
	if last == first {
		return errors.New("the key is the one before")
	}
	if err := t.same(ctx, before); err != nil {
		return err
	}
	return t.deletePod(ctx, "warren-1", nil) // it is found at its new address
}

// fingerprints waits until all nodes have the same keys, so many, and not those of before.
func (t *test) fingerprints(ctx context.Context, count int, before string) (now string, err error) {
	err = t.rig.Until(ctx, readyWait, func(ctx context.Context) error {
		out, err := t.ctl(ctx, "warren-0", "gossip_keys", "--silent")
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		_, now, _ = strings.Cut(lines[0], "\ton\t")
		if len(lines) != 3 || len(strings.Fields(now)) != count || now == before {
			return fmt.Errorf("keys of nodes: %q", lines)
		}
		return nil
	})
	return now, err
}
