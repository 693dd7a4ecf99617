// Test runs Warren's manifests on a real Kubernetes of this machine (package rig) and goes through what happens to pods in
// production while clients publish, consume and dead-letter through the Service. It ends with 1 when a message was lost or
// came twice, or a step failed. `make k8s-test` builds what it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/warrenmq/warren/deploy/k8s/test/rig"
)

func main() {
	inside, code, err := rig.Enter()
	if err == nil && inside {
		err = work()
	}
	if !inside && os.Getenv("WARREN_K8S_STAGE") == "" {
		rig.Clean()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "k8s-test:", err)
		code = 1
	}
	os.Exit(code)
}

const plainManifests = "deploy/k8s/test/manifests"

func work() error {
	dir := flag.String("dir", ".run/k8s", "`folder` of the run, emptied first")
	bin := flag.String("bin", ".run/k8s-bin", "`folder` of the programs kube, pause, render and warren-level1, and of the image warren.tar")
	script := flag.String("secrets", "deploy/k8s/secrets.sh", "`program` that prints the Secrets")
	manifests := flag.String("manifests", plainManifests, "`folder` for kustomize")
	secure := flag.Bool("tls", false, "run deploy/k8s/test/tls or what else -manifests names, with certificates, in place of the plain manifests")
	only := flag.String("only", "", "names of scenarios, by commas; the first start is always there")
	flag.Parse()
	var chosen []string
	if *only != "" {
		var err error
		if chosen, err = choose(*only); err != nil {
			return err
		}
	}
	nodes, err := newAuthority("the nodes' authority")
	if err != nil {
		return err
	}
	s := &security{nodes: nodes, serial: map[string]*big.Int{}}
	if *secure {
		if *manifests == plainManifests {
			*manifests = "deploy/k8s/test/tls"
		}
		if s.clients, err = newAuthority("the authority for clients"); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			a.Value = slog.StringValue(a.Value.Time().Format(time.TimeOnly))
		}
		return a
	}}))
	programs, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	r, err := rig.Start(ctx, rig.Config{
		Dir: *dir, Kube: filepath.Join(programs, "kube"), Pause: filepath.Join(programs, "pause"), Log: log,
		Images: []rig.Image{{Archive: filepath.Join(programs, "warren.tar")}, image(imageBefore, filepath.Join(programs, "warren-level1"))},
	})
	if err != nil {
		return err
	}
	defer r.Stop()
	t := &test{rig: r, log: log, manifests: *manifests, secrets: *script, helmProgram: filepath.Join(programs, "render"), only: chosen, tls: s}
	err = t.run(ctx)
	if err != nil {
		report, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		err = errors.Join(err, r.Report(report))
		cancel()
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	r.RemovePods(end)
	return err
}

// The images: that of the manifests, which the Dockerfile makes, and one of a program that knows the cluster's first level only, which stands for the version before.
const (
	imageNow    = "warren:0.1.0"
	imageBefore = "warren:0.1.0-level1"
)

// image is like the one that the Dockerfile makes, of another program.
func image(name, program string) rig.Image {
	return rig.Image{
		Name: "docker.io/library/" + name, Files: map[string]string{"/warren": program},
		User: "65532:65532", Entrypoint: []string{"/warren"}, Cmd: []string{"serve"},
	}
}
