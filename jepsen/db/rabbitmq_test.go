package db

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/warrenmq/warren/jepsen/network"
)

// TestRabbitMQNeeds: without its packages, or without namespaces, RabbitMQ is refused.
func TestRabbitMQNeeds(t *testing.T) {
	nodes := NodeNames(3)
	proxies, err := network.OpenProxies(nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer proxies.Close()
	root := t.TempDir()
	opts := Options{Nodes: 3, Binary: root, Dir: t.TempDir()}
	if _, err := New("rabbitmq", proxies, opts); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without packages: %v", err)
	}
	for _, file := range []string{"usr/lib/rabbitmq/bin/rabbitmq-server", "usr/lib/erlang/bin/epmd"} {
		file = filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New("rabbitmq", proxies, opts); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without namespaces: %v", err)
	}
}

// TestRabbitMQAnswers: what the management API says about a queue is read by its names, and a
// broker that refuses is an error.
func TestRabbitMQAnswers(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		if user != User || password != User {
			t.Errorf("as %q, %q", user, password)
		}
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(map[string]any{
			"name": "q", "type": "quorum", "leader": "rabbit@10.77.0.2", "messages_ready": 3, "messages_unacknowledged": 2, "messages_dlx": 1,
		}); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &RabbitMQ{client: server.Client()}
	var q rabbitQueue
	if err := r.get(t.Context(), base.String()+"/api/queues/%2F/q", &q); err != nil || q.Leader != "rabbit@10.77.0.2" || q.Ready != 3 || q.Unacked != 2 || q.Leaving != 1 {
		t.Errorf("%+v, %v", q, err)
	}
	status = http.StatusServiceUnavailable
	if err := r.get(t.Context(), base.String(), &q); err == nil {
		t.Error("no error for 503")
	}
}
