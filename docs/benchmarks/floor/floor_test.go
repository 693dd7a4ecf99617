//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFloor runs the program with each kind of link.
func TestFloor(t *testing.T) {
	program := filepath.Join(t.TempDir(), "floor")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as nodes are built: with cgo all that is above package net would be compiled once more
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, links := range []string{"tcp", "grpc"} {
		cmd := exec.Command(program, "--links", links, "--dir", t.TempDir(), "--rate", "200", "--warmup", "200ms", "--duration", "1s")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", links, err)
		}
		var x result
		if err := json.Unmarshal(out, &x); err != nil {
			t.Fatalf("%s: %v in %q", links, err, out)
		}
		if x.P50 <= 0 || x.P99 < x.P50 || x.Cores <= 0 || len(x.Micros) != 3 {
			t.Errorf("%s: %+v", links, x)
		}
	}
	for _, args := range [][]string{{"--links", "udp"}, {"--role", "voter", "--no-disk"}, {"--duration", "1ms"}, {"rest"}} {
		if err := exec.Command(program, args...).Run(); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
