package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// timeoutClient bounds one run of a foreign client.
const timeoutClient = 2 * time.Minute

// foreignClients are programs in other languages that check a broker: they take
// a URL, print a line for each promise that holds, and "done" at the end.
// test/clients/install.sh brings what they need.
var foreignClients = map[string][]string{
	"pika":    {"/usr/bin/python3", "../clients/pika/check.py"},
	"amqplib": {"node", "../clients/node/check.js"},
}

func TestForeignClients(t *testing.T) {
	for name, command := range foreignClients {
		t.Run(name, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, to target) {
				runClient(t, append(command, to.url), nil)
			})
		})
	}
}

// TestForeignClientsSurvive kills the node a client is connected to, in the
// middle of its work.
func TestForeignClientsSurvive(t *testing.T) {
	c := startCluster(t, 3)
	for name, command := range foreignClients {
		t.Run(name, func(t *testing.T) {
			first, second := c.Node(0), c.Node(1)
			runClient(t, append(command, first.URL(), second.URL()), func() { kill(t, first) })
			start(t, first)
		})
	}
}

// runClient runs the command. When it prints a line that begins with "kill",
// kill is called and an empty line is sent to it.
func runClient(t *testing.T, command []string, kill func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutClient)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (make test-deps installs the clients)", err)
	}
	var said []string
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		said = append(said, lines.Text())
		if kill != nil && strings.HasPrefix(lines.Text(), "kill") {
			kill()
			if _, err := fmt.Fprintln(stdin); err != nil {
				t.Error(err)
			}
		}
	}
	io.Copy(io.Discard, stdout)
	err = cmd.Wait()
	if err != nil || len(said) == 0 || said[len(said)-1] != "done" {
		t.Errorf("%s: %v\n%s\n%s", command[0], err, strings.Join(said, "\n"), stderr.String())
	}
}
