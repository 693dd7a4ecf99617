// Render writes the manifests that are made from the chart; its argument is the folder deploy/k8s. With -server it prints what an upgrade of the release
// warren by Helm would apply there, and asks that API server what is kept; the token is in KUBE_TOKEN.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/warrenmq/warren/deploy/k8s/check"
)

func main() {
	server := flag.String("server", "", "`URL` of an API server whose release is upgraded")
	values := flag.String("values", "", "values over the chart's, in `YAML`, with -server")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: render [-server URL [-values YAML]] DEPLOY-K8S-FOLDER")
		os.Exit(2)
	}
	err := errors.New("-values without -server")
	switch {
	case *server != "":
		err = upgrade(flag.Arg(0), *values, *server)
	case *values == "":
		err = write(flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func upgrade(root, values, server string) error {
	// The API server is the test's own; its certificate is of nobody.
	to := &rest.Config{Host: server, BearerToken: os.Getenv("KUBE_TOKEN"), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	text, err := check.Upgrade(filepath.Join(root, "chart"), values, to)
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	return err
}

func write(root string) error {
	files, err := check.Render(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
		fmt.Println(file)
	}
	return nil
}
