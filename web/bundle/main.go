// Command bundle makes the management page: web/src becomes web/dist, which package web embeds.
//
//	go run ./web/bundle [-if-possible]
//
// The libraries come by npm, in the versions of package-lock.json, once; after that npm is not
// used and the work takes some hundredths of a second. With -if-possible a machine without npm
// keeps what is in web/dist, which may be nothing.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
	"golang.org/x/sys/unix"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("page: ")
	ifPossible := flag.Bool("if-possible", false, "without npm, leave everything as it is")
	dir := flag.String("dir", "web", "the folder of the page")
	flag.Parse()
	if err := run(*dir, *ifPossible); err != nil {
		log.Fatal(err)
	}
}

func run(dir string, ifPossible bool) error {
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	switch ok, err := install(dir); {
	case err != nil:
		return err
	case !ok && ifPossible:
		log.Print("npm is not installed: the program will have no management page, or the one that was built before")
		return nil
	case !ok:
		return errors.New("npm is not installed")
	}
	files, err := bundle(dir)
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, "dist"), files)
}

// lock keeps others that make the page at the same time waiting: tests of several packages do.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "dist", ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // which unlocks it
}

// install has npm install the libraries unless those of package-lock.json are there. ok is false if there is no npm.
func install(dir string) (ok bool, err error) {
	want, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return false, err
	}
	mark := filepath.Join(dir, "node_modules", ".warren-lock")
	if have, err := os.ReadFile(mark); err == nil && bytes.Equal(have, want) {
		return true, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return false, nil
	}
	cmd := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Run(); err != nil {
		return false, fmt.Errorf("npm ci: %w", err)
	}
	return true, os.WriteFile(mark, want, 0o644)
}

// bundle returns the files of dist by their names.
func bundle(dir string) (map[string][]byte, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	r := api.Build(api.BuildOptions{
		AbsWorkingDir: root,
		EntryPointsAdvanced: []api.EntryPoint{
			{InputPath: "src/main.tsx", OutputPath: "app"}, {InputPath: "src/icon.svg", OutputPath: "icon"},
		},
		Outdir: "dist/assets", EntryNames: "[name]-[hash]", AssetNames: "[name]-[hash]",
		Bundle: true, MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, Format: api.FormatESModule, Target: api.ES2022,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", LegalComments: api.LegalCommentsEndOfFile,
		Loader: map[string]api.Loader{".svg": api.LoaderCopy}, Define: map[string]string{"process.env.NODE_ENV": `"production"`},
	})
	if len(r.Errors) > 0 {
		return nil, errors.New(strings.Join(api.FormatMessages(r.Errors, api.FormatMessagesOptions{}), "\n"))
	}
	files := map[string][]byte{}
	named := map[string]string{} // by the extension
	for _, f := range r.OutputFiles {
		base := filepath.Base(f.Path)
		files["assets/"+base] = f.Contents
		named[filepath.Ext(base)] = "assets/" + base
	}
	if files["licences.txt"], err = licences(dir); err != nil {
		return nil, err
	}
	files["index.html"], err = index(dir, named)
	return files, err
}

// index names the bundled files in index.html, which has {{.js}}, {{.css}} and {{.svg}} for them.
func index(dir string, named map[string]string) ([]byte, error) {
	page, err := os.ReadFile(filepath.Join(dir, "src", "index.html"))
	for _, ext := range []string{".js", ".css", ".svg"} {
		if err == nil && named[ext] == "" {
			err = fmt.Errorf("no %s file came out", ext)
		}
		page = bytes.ReplaceAll(page, []byte("{{"+ext+"}}"), []byte(named[ext]))
	}
	return page, err
}

// licences are those of the libraries that are in the bundle, as they ask for.
func licences(dir string) ([]byte, error) {
	out := []byte("The page contains these libraries.\n")
	for _, name := range []string{"preact", "uplot"} {
		text, err := os.ReadFile(filepath.Join(dir, "node_modules", name, "LICENSE"))
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "\n%s\n\n%s", name, text)
	}
	return out, nil
}

// write makes dist what files says. What is the same is not touched: Go's build cache goes by it.
func write(dist string, files map[string][]byte) error {
	names := slices.Collect(maps.Keys(files))
	// index.html names those in assets/, and comes behind them.
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(filepath.Dir(b), filepath.Dir(a)) })
	for _, name := range names {
		to := filepath.Join(dist, name)
		if have, err := os.ReadFile(to); err == nil && bytes.Equal(have, files[name]) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to+".new", files[name], 0o644); err != nil {
			return err
		}
		if err := os.Rename(to+".new", to); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dist, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		name, err := filepath.Rel(dist, path)
		if err == nil && files[filepath.ToSlash(name)] == nil {
			err = os.Remove(path)
		}
		return err
	})
}
