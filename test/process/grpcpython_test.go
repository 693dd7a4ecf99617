package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestPythonExample runs the example of the gRPC API in Python as its first lines say, with the code that Debian's tools generate.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	files, err := filepath.Glob("../../api/warren/v1/*.proto")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: %v", files, err)
	}
	out := t.TempDir()
	generate := append([]string{"-I", "../../api", "--python_out=" + out, "--grpc_out=" + out, "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin"}, files...)
	if text, err := exec.CommandContext(t.Context(), "protoc", generate...).CombinedOutput(); err != nil {
		t.Fatalf("protoc: %v\n%s", err, text)
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "../../api/examples/retry.py", c.Node(1).GRPCAddr(), "guest", "guest")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+out, "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if want := "at once: tried 1 times\nnever: tried 3 times\nthe second time: tried 2 times\nparked: ['never']\n"; err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
}
