package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warrenmq/warren/config"
)

// TestTranslate: a rabbitmq.conf and a conf.d become a file that a node can be started with; what cannot be read is an error of usage.
func TestTranslate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	run := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = execute(t.Context(), append([]string{"translate"}, args...), environment{lookup: os.LookupEnv, stdout: &out, stderr: &errs})
		return code, out.String(), errs.String()
	}
	conf := write("rabbitmq.conf", "listeners.tcp.default = 5672\nheartbeat = 60\ndefault_pass = topsecret\n")
	write("conf.d/20-b.conf", "heartbeat = 20\n")
	write("conf.d/10-a.conf", "heartbeat = 10\nmqtt.allow_anonymous = false\n")
	write("conf.d/30.txt", "no configuration")
	code, out, errs := run(conf, filepath.Join(dir, "conf.d"))
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{`amqp-addr: ":5672"`, `heartbeat: "20s"`, "# To look at:", "mqtt.allow_anonymous = false", "Warren speaks AMQP 0-9-1"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "topsecret") {
		t.Error("the password is printed")
	}
	cfg, err := config.Load(config.Sources{File: write("warren.yaml", out)})
	if err != nil || cfg.Heartbeat.Seconds() != 20 {
		t.Errorf("the file is read as %v, %v", cfg.Heartbeat, err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "requires at least 1 arg"},
		{[]string{filepath.Join(dir, "absent.conf")}, "no such file"},
		{[]string{write("bad.conf", "a = b\nnonsense\n")}, "bad.conf:2: expected KEY = VALUE"},
		{[]string{write("empty/a.txt", "")[:len(dir)+len("/empty")]}, "there is no *.conf in it"},
	} {
		if code, _, errs := run(c.args...); code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit code %d, %q", c.args, code, errs)
		}
	}
}
