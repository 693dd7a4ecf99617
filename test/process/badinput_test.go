package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// runBinary runs the node's binary until it ends by itself.
func runBinary(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	needWarren(t)
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// lastLine returns what the binary said at the end: its log comes before.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return lines[len(lines)-1]
}

// loopbackFlags puts all listeners on free ports.
func loopbackFlags(t *testing.T, dir string) []string {
	t.Helper()
	ports, err := cluster.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"serve", "--data-dir", dir, "--amqp-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0",
		"--cluster-addr", fmt.Sprint("127.0.0.1:", ports[0]), "--gossip-addr", fmt.Sprint("127.0.0.1:", ports[1]),
	}
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "warren.yaml")
	if err := os.WriteFile(file, []byte("node-id: n1\nmax-queues: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown key", []string{"serve", "--config", file}, file + `:2: unknown key "max-queues"`},
		{"bad address", []string{"serve", "--amqp-addr", "here"}, `amqp-addr: "here" is not of the form host:port`},
		{"unknown flag", []string{"serve", "--fast"}, "unknown flag: --fast"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stderr := runBinary(t, tc.args...)
			if code != 2 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tc.want) {
				t.Errorf("code %d, %q, want 2 and one line with %q", code, stderr, tc.want)
			}
		})
	}
}

func TestWrongDataFolder(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	node := c.Node(0)
	s := at(t, node)
	plainQueue(s, "kept", nil)
	s.fill("kept", "m")

	for _, tc := range []struct {
		name string
		dir  func(*testing.T) string
		args []string
		want string
	}{
		{name: "a file", want: "not a directory", dir: func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{name: "somebody else's folder", want: "is not empty", dir: func(t *testing.T) string {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "letter.txt"), []byte("dear reader"), 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{name: "a folder in use", want: "in use", args: []string{"--node-id", "node1"}, dir: func(*testing.T) string { return node.DataDir() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := tc.dir(t)
			before := content(t, dir)
			code, stderr := runBinary(t, append(loopbackFlags(t, dir), tc.args...)...)
			if line := lastLine(stderr); code != 1 || !strings.Contains(line, tc.want) || !strings.HasPrefix(line, "warren: ") {
				t.Errorf("code %d, last line %q, want 1 and %q", code, line, tc.want)
			}
			if after := content(t, dir); tc.name != "a folder in use" && after != before {
				t.Errorf("the files were changed:\n%s\n%s", before, after)
			}
		})
	}

	t.Run("another node's folder", func(t *testing.T) {
		stopNode(t, node)
		code, stderr := runBinary(t, append(loopbackFlags(t, node.DataDir()), "--node-id", "somebody-else")...)
		if line := lastLine(stderr); code != 1 || !strings.Contains(line, "node1") || !strings.Contains(line, "somebody-else") {
			t.Errorf("code %d, last line %q, want 1 and both names", code, line)
		}
	})
	start(t, node)
	at(t, node).holds("kept", "m")
}

// content returns a file, or the files of a folder that are not empty.
func content(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(path, func(p string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() || info.Size() == 0 {
			return err
		}
		data, err := os.ReadFile(p)
		fmt.Fprintf(&b, "%s %v %x\n", p, info.Mode(), data[:min(len(data), 100)])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"--amqp-addr", "--http-addr", "--grpc-addr", "--cluster-addr"} {
		t.Run(flag, func(t *testing.T) {
			code, stderr := runBinary(t, append(loopbackFlags(t, t.TempDir()), flag, l.Addr().String())...)
			if line := lastLine(stderr); code != 1 || !strings.Contains(line, strings.TrimPrefix(flag, "--")+": listen tcp "+l.Addr().String()) || !strings.Contains(line, "address already in use") {
				t.Errorf("code %d, last line %q", code, line)
			}
		})
	}
}

// TestTornTail cuts the log of a killed node short, in the middle of what was
// written last, as a crash of the machine may. The node starts, says so, and
// the cluster has everything.
func TestTornTail(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	plainQueue(s, "torn", nil)
	s.fill("torn", numbered("m", 500)...)
	for i, n := range c.Nodes() {
		kill(t, n)
		cutTail(t, n)
		start(t, n)
		at(t, n).fill("torn", fmt.Sprint("after", i))
	}
	at(t, c.Node(2)).holds("torn", append(numbered("m", 500), "after0", "after1", "after2")...)
}

// TestTornTailSingle does the same to a single node: it starts, and what came
// before the cut is there.
func TestTornTailSingle(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	n := c.Node(0)
	s := at(t, n)
	plainQueue(s, "torn", nil)
	for _, body := range numbered("m", 100) { // one entry each
		s.fill("torn", body)
	}
	kill(t, n)
	cutTail(t, n)
	start(t, n)
	s = at(t, n)
	q, err := s.ch.QueueDeclarePassive("torn", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if q.Messages < 90 || q.Messages > 100 {
		t.Errorf("%d of 100 messages are left after the last record was cut", q.Messages)
	}
	got := s.drain("torn")
	for i, body := range got {
		if body != fmt.Sprint("m", i+1) {
			t.Fatalf("message %d is %q", i+1, body)
		}
	}
	s.fill("torn", "after")
	s.holds("torn", "after")
}

// cutTail takes the last bytes away of what was written into the newest segment of a node's log, as a write that was under way
// leaves it: the file keeps the size that it was made with.
func cutTail(t *testing.T, n *cluster.Node) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.DataDir(), "*", "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segments in %s: %v", n.DataDir(), err)
	}
	newest, end := "", 0
	for _, path := range files { // the names grow
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if written := len(bytes.TrimRight(data, "\x00")); written > 4096 && filepath.Base(path) > filepath.Base(newest) {
			newest, end = path, written
		}
	}
	if newest == "" {
		t.Fatalf("all of %q are empty", files)
	}
	t.Logf("cutting %s at %d", filepath.Base(newest), end-5)
	f, err := os.OpenFile(newest, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 5), int64(end-5))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// smallDisk mounts a file system of this size for a node's data.
func smallDisk(t *testing.T, dir string, mib int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Fatalf("mount a small file system (the tests run as root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

func growDisk(t *testing.T, dir string, mib int) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk fills the disk of a single node. Nothing that does not fit is
// confirmed, the log says why, and everything confirmed is there when the disk
// has grown.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	needWarren(t)
	disk := filepath.Join(t.TempDir(), "disk")
	smallDisk(t, disk, 64)
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Dir = disk })
	startAll(t, c)
	n := c.Node(0)
	s := at(t, n)
	plainQueue(s, "disk", nil)
	confirmed := publishUntilStuck(s, "disk", 64<<10, 3*1024)
	if confirmed < 100 {
		t.Errorf("only %d messages of 64 KiB fitted on 64 MiB", confirmed)
	}
	log, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "no space left on device") && !strings.Contains(string(log), "disk") {
		t.Errorf("the log does not tell about the disk:\n%s", n.LogTail())
	}
	kill(t, n)
	growDisk(t, disk, 512)
	start(t, n)
	s = at(t, n)
	q, err := s.ch.QueueDeclarePassive("disk", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d messages confirmed, %d there", confirmed, q.Messages)
	if q.Messages < confirmed {
		t.Errorf("%d messages are there, %d were confirmed", q.Messages, confirmed)
	}
	s.fill("disk", "one more")
}

// TestFullDiskOfOne fills the disk of one node of three. Its alarm may block
// publishers of all nodes; without that node the others go on.
func TestFullDiskOfOne(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := newCluster(t, 3)
	small := c.Node(1)
	smallDisk(t, small.Dir, 32)
	t.Cleanup(func() { // before the file system goes
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	startAll(t, c)
	s := at(t, c.Node(0))
	plainQueue(s, "disk", nil)
	blocked := s.conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	go func() { // ends with the connection
		for b := range blocked {
			if b.Active {
				_ = small.Kill() // it may have met the end of its disk first
			}
		}
	}()
	body := make([]byte, 64<<10)
	const n = 1000
	var last *amqp.DeferredConfirmation
	for range n {
		confirm, err := s.ch.PublishWithDeferredConfirm("", "disk", false, false, amqp.Publishing{Body: body, DeliveryMode: 2})
		s.noError("publish", err)
		last = confirm
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeoutReply)
	defer cancel()
	if ok, err := last.WaitContext(ctx); err != nil || !ok {
		t.Fatalf("confirm of the last message: %v, %v", ok, err)
	}
	s.ready("disk", n)
	at(t, c.Node(2)).ready("disk", n)
}

// publishUntilStuck publishes messages of this size, at most limit, until no
// confirm comes any more or the connection is closed, and returns how many were
// confirmed.
func publishUntilStuck(s *session, queue string, size, limit int) int {
	s.Helper()
	const window = 8
	acks := s.ch.NotifyPublish(make(chan amqp.Confirmation, limit))
	body := make([]byte, size)
	confirmed, sent := 0, 0
	for {
		for sent < limit && sent-confirmed < window {
			sent++
			published := make(chan error, 1)
			go func() { // ends with the connection, which the test closes
				published <- s.ch.Publish("", queue, false, false, amqp.Publishing{Body: body, DeliveryMode: 2})
			}()
			for begun := time.Now(); published != nil; {
				select {
				case err := <-published:
					if err != nil {
						return confirmed
					}
					published = nil
				case <-time.After(3 * time.Second): // not read any more, unless the machine stands still
					if cluster.Stalled(begun) < 500*time.Millisecond {
						return confirmed
					}
					begun = time.Now()
				}
			}
		}
		begun := time.Now()
		select {
		case a, ok := <-acks:
			if !ok {
				return confirmed
			}
			if !a.Ack {
				return confirmed
			}
			confirmed++
		case <-time.After(3 * time.Second):
			if cluster.Stalled(begun) < 500*time.Millisecond {
				return confirmed
			}
		}
		if confirmed == limit {
			s.Fatalf("%d messages of %d bytes were confirmed on a small disk", confirmed, size)
		}
	}
}

// TestSmallDiskBlocksPublishers fills the disk of a node on which a whole segment of the log takes more than is free long before the disk is nearly
// full, by a publisher that is as fast as memory. The node goes on with smaller segments, blocks the publisher in time, and gives out what it has. What was
// acked makes room, though the acks are small and the last that is written.
func TestSmallDiskBlocksPublishers(t *testing.T) {
	t.Parallel()
	needWarren(t)
	disk := filepath.Join(t.TempDir(), "disk")
	smallDisk(t, disk, 400)
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Dir = disk })
	startAll(t, c)
	n := c.Node(0)
	defer kill(t, n) // before connections are closed: nothing that the publisher says is read any more
	publisher, blocked := blockedSession(t, n)
	plainQueue(publisher, "disk", nil)
	confirmed := publishUntilStuck(publisher, "disk", 64<<10, 16*1024)
	wantBlocked(t, blocked, true, "low on disk")
	if !n.Running() {
		t.Fatalf("the node ended with %d messages\n%s", confirmed, n.LogTail())
	}
	s := at(t, n)
	_, deliveries := s.consume("disk", 100)
	for range confirmed {
		s.noError("ack", s.next(deliveries).Ack(false))
	}
	wantBlocked(t, blocked, false, "")
	s.fill("disk", "one more")
}
