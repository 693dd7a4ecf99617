package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// timeoutClient bounds one run of a foreign client.
const timeoutClient = 3 * time.Minute

// foreignClients are programs in other languages that check a broker: they take
// a URL, print a line for each promise that holds, and "done" at the end. With a
// second URL they say "kill" in the middle of their work, wait for a line, and
// go on at that address. test/clients/install.sh brings what they need.
var foreignClients = map[string][]string{
	"pika":            {"/usr/bin/python3", "../clients/pika/check.py"},
	"py-amqp":         {"/usr/bin/python3", "../clients/python/check_pyamqp.py"},
	"kombu":           {"/usr/bin/python3", "../clients/python/check_kombu.py"},
	"amqplib":         {"node", "../clients/node/check.js"},
	"rabbitmq-client": {"node", "../clients/node/check-rabbitmq-client.js"},
	"php-amqplib":     {"/usr/bin/php", "../clients/php/check.php"},
	"bunny":           {"/usr/bin/ruby", "../clients/ruby/check.rb"},
	"librabbitmq":     {librabbitmq},
	"amqp-tools":      {"../clients/tools/check.sh"},
	"java":            {"java", "-cp", "/usr/share/java/amqp-client.jar:/usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-nop.jar", "../clients/java/Check.java"},
}

// librabbitmq stands for the program that compileClient makes.
const librabbitmq = "librabbitmq"

// TestForeignClients runs all clients at the same time: each against a single
// node and one of three.
func TestForeignClients(t *testing.T) {
	t.Parallel()
	for i, name := range slices.Sorted(maps.Keys(foreignClients)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := commandOf(t, name)
			for _, to := range someTargets(t, i) {
				t.Run(to.name, func(t *testing.T) { runClient(t, append(command, to.url), nil) })
			}
		})
	}
}

// someTargets are a single node and node i of three, or the foreign brokers.
func someTargets(t *testing.T, i int) (list []target) {
	if urls := foreignURLs(); urls != nil {
		for _, url := range urls {
			list = append(list, target{name: "foreign", url: url})
		}
		return list
	}
	i %= 3
	return []target{
		{name: "single", url: sharedCluster(t, 1).Node(0).URL(), warren: true},
		{name: fmt.Sprintf("three-%d", i+1), url: sharedCluster(t, 3).Node(i).URL(), warren: true},
	}
}

// TestForeignClientsSurvive kills the node that all clients are connected to, in
// the middle of their work. Those that recover by themselves do; the others
// connect to another node.
func TestForeignClientsSurvive(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	first, second := c.Node(0), c.Node(1)
	var ready, ended sync.WaitGroup
	killed := make(chan struct{})
	for name := range foreignClients {
		command := append(commandOf(t, name), first.URL(), second.URL())
		ready.Add(1)
		ended.Go(func() {
			var once sync.Once
			defer once.Do(ready.Done)
			runClient(t, command, func() {
				once.Do(ready.Done)
				<-killed
			})
		})
	}
	ready.Wait()
	kill(t, first)
	close(killed)
	ended.Wait()
}

var compileOnce sync.Once

// commandOf returns a client's command line without URLs.
func commandOf(t *testing.T, name string) []string {
	t.Helper()
	command := foreignClients[name]
	if command[0] != librabbitmq {
		return slices.Clip(command)
	}
	program := filepath.Join(shared.dir, librabbitmq)
	compileOnce.Do(func() {
		out, err := exec.CommandContext(t.Context(), "gcc", "-O1", "-Wno-deprecated-declarations", "-o", program, "../clients/c/check.c", "-lrabbitmq").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
	return []string{program}
}

// runClient runs the command. When it prints a line that begins with "kill",
// kill is called and an empty line is sent to it.
func runClient(t *testing.T, command []string, kill func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutClient)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Errorf("%v (make test-deps installs the clients)", err)
		return
	}
	begun := time.Now()
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
		t.Errorf("%s after %v: %v\n%s\n%s", strings.Join(command, " "), time.Since(begun), err, strings.Join(said, "\n"), stderr.String())
	}
}
