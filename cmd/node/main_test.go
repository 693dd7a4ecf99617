package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/transport"
)

func TestBadValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "warren.yaml")
	if err := os.WriteFile(file, []byte("amqp-port: 5672\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{name: "unknown command", args: []string{"sreve"}, want: `unknown command "sreve" for "warren", did you mean "serve"?`},
		{name: "nothing like it", args: []string{"frobnicate"}, want: "unknown command \"frobnicate\" for \"warren\": `warren --help` lists them"},
		{name: "unknown flag", args: []string{"serve", "--port", "1"}, want: "unknown flag: --port: `warren serve --help` lists the settings"},
		{name: "argument too many", args: []string{"serve", "now"}, want: `unknown command "now" for "warren serve"`},
		{name: "flag without value", args: []string{"serve", "--amqp-addr"}, want: "flag needs an argument: --amqp-addr"},
		{name: "node id", args: []string{"serve", "--node-id", "a b"}, want: "node-id: only letters, digits"},
		{name: "data dir", args: []string{"serve", "--data-dir", ""}, want: "data-dir: must not be empty"},
		{name: "amqp addr", args: []string{"serve", "--amqp-addr", "5672"}, want: `amqp-addr: "5672" is not of the form host:port`},
		{name: "http addr", args: []string{"serve", "--http-addr", ":99999"}, want: `http-addr: ":99999" has no port number`},
		{name: "grpc addr", args: []string{"serve", "--grpc-addr", "x"}, want: `grpc-addr: "x" is not of the form host:port`},
		{name: "cluster addr", args: []string{"serve", "--cluster-addr", ":0"}, want: "cluster-addr: \":0\": other nodes must know the port"},
		{name: "gossip addr", args: []string{"serve", "--gossip-addr", "a:b"}, want: `gossip-addr: "a:b" has no port number`},
		{name: "join", args: []string{"serve", "--join", "a:1,b"}, want: `join: "b" is not of the form host:port`},
		{name: "bootstrap expect", args: []string{"serve", "--bootstrap-expect", "few"}, want: `--bootstrap-expect: must be a whole number, got "few"`},
		{name: "log level", args: []string{"serve", "--log-level", "loud"}, want: "--log-level: must be debug, info, warn or error"},
		{name: "log format", args: []string{"serve", "--log-format", "xml"}, want: `log-format: must be text or json, got "xml"`},
		{name: "environment", args: []string{"serve"}, env: map[string]string{"WARREN_GRPC_ADDR": "x"}, want: "grpc-addr"},
		{name: "unknown key", args: []string{"serve", "--config", file}, want: `:1: unknown key "amqp-port"`},
		{name: "folder of certificates", args: []string{"certificates"}, want: "warren: --out is needed"},
		{name: "folder to look into", args: []string{"inspect", "messages"}, want: "warren: usage: warren inspect messages DIR ID [flags]"},
		{name: "missing file", args: []string{"serve", "--config", file + ".no"}, want: "no such file"},
		{name: "folder for a file", args: []string{"serve", "--config", filepath.Dir(file)}, want: "is a directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, stdout, stderr := testEnvironment(tc.env)
			env.serve = func(context.Context, config.Config, *slog.Logger, *logs) error {
				t.Error("the node was started")
				return nil
			}
			if code := execute(t.Context(), tc.args, env); code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			got := stderr.String()
			if strings.Count(got, "\n") != 1 || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want one line with %q", got, tc.want)
			}
			if stdout.Len() > 0 {
				t.Errorf("standard output: %q", stdout)
			}
		})
	}
}

func TestServe(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"clean stop", nil, exitOK, ""},
		{"failure", errors.New("data folder:\n disk is full"), exitFailed, "warren: data folder: disk is full\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, _, stderr := testEnvironment(map[string]string{"WARREN_NODE_ID": "env", "WARREN_AMQP_ADDR": ":1"})
			var got config.Config
			env.serve = func(_ context.Context, cfg config.Config, log *slog.Logger, _ *logs) error {
				log.Debug("not shown")
				got = cfg
				return tc.err
			}
			code := execute(t.Context(), []string{"serve", "--node-id=flag", "--join", "a:1,b:2"}, env)
			if code != tc.code || stderr.String() != tc.want {
				t.Errorf("got %d and %q, want %d and %q", code, stderr, tc.code, tc.want)
			}
			if got.NodeID != "flag" || got.AMQPAddr != ":1" || len(got.Join) != 2 {
				t.Errorf("settings: %+v", got)
			}
		})
	}
}

func TestLogFormat(t *testing.T) {
	for format, want := range map[string]string{"text": `level=INFO msg=hello node=n1`, "json": `"msg":"hello","node":"n1"`} {
		env, _, stderr := testEnvironment(nil)
		env.serve = func(_ context.Context, _ config.Config, log *slog.Logger, _ *logs) error {
			log.Info("hello")
			return nil
		}
		execute(t.Context(), []string{"serve", "--node-id=n1", "--log-format", format}, env)
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: got %q, want %q in it", format, stderr, want)
		}
	}
}

// A line's own fields stand in it once, and values are not the insides of libraries.
func TestLogFieldsAreUnique(t *testing.T) {
	var none *net.TCPAddr
	for format, want := range map[string]string{
		"json": `"level":"INFO","msg":"m","node":"n1","peer":"n2","cluster_level":2,"addr":"127.0.0.1:1","none":"<nil>","err":"e","d":1000,"g":{"node":"n3"}}`,
		"text": `level=INFO msg=m node=n1 peer=n2 cluster_level=2 addr=127.0.0.1:1 none=<nil> err=e d=1µs g.node=n3`,
	} {
		env, _, stderr := testEnvironment(nil)
		env.serve = func(_ context.Context, _ config.Config, log *slog.Logger, _ *logs) error {
			log.Info("m", "node", transport.NodeID("n2"), "level", 2, "addr", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, "none", none,
				"err", errors.New("e"), "d", time.Microsecond, slog.Group("g", "node", "n3"))
			return nil
		}
		execute(t.Context(), []string{"serve", "--node-id=n1", "--log-format", format}, env)
		if got := strings.TrimSpace(stderr.String()); !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "warren " + buildVersion()},
		{[]string{"--version"}, "warren " + buildVersion()},
		{[]string{}, "Usage:"},
		{[]string{"serve", "--help"}, "--bootstrap-expect"},
	} {
		env, stdout, stderr := testEnvironment(nil)
		if code := execute(t.Context(), tc.args, env); code != exitOK || !strings.Contains(stdout.String(), tc.want) || stderr.Len() > 0 {
			t.Errorf("%q: code %d, out %q, err %q", tc.args, code, stdout, stderr)
		}
	}
}

func testEnvironment(vars map[string]string) (env environment, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	lookup := func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
	return environment{lookup: lookup, stdout: stdout, stderr: stderr}, stdout, stderr
}
