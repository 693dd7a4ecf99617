// Render writes the manifests that are made from the chart; its argument is the folder deploy/k8s.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/warrenmq/warren/deploy/k8s/check"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: render DEPLOY-K8S-FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
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
