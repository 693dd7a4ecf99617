package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// definitionsBytesMax bounds a file of definitions; the node's bound is the same.
const definitionsBytesMax = 64 << 20

// stdio is the name of a file that stands for standard input or output.
const stdio = "-"

// altered is in the explanation of exported definitions that are not in all what the node has.
const altered = "U+FFFD"

// rawJSON is a request's body as it is.
type rawJSON []byte

func definitionVerbs(t *tool) []*cobra.Command {
	var format string
	export := t.command(verb{
		use: "export_definitions [FILE]", short: "Write users, vhosts, policies, exchanges, queues and bindings to a file", max: 1, patient: true,
		long: "Write users, virtual hosts, permissions, limits, policies, exchanges, queues and bindings to a file, in the JSON of RabbitMQ's\n" +
			"tools. Messages are not in it: that is `warren ctl backup`. Without FILE, or with -, it goes to standard output. With --vhost it is\n" +
			"what is in that virtual host, without users. Password hashes are in the file, which only its owner can read.",
		run: func(ctx context.Context, s *session, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return s.exportDefinitions(ctx, fileOf(args), t.definitionsPath())
		},
	})
	var dry, unchanged, unsupported bool
	imports := t.command(verb{
		use: "import_definitions [FILE]", short: "Import a definitions file: adds and replaces, deletes nothing", max: 1, patient: true,
		long: "Make what a file of definitions says: of Warren, or of RabbitMQ 3 or 4. Without FILE, or with -, it is standard input. Nothing is\n" +
			"deleted; queues and exchanges that are there stay as they are; the default user stays as it is. A file with anything that cannot\n" +
			"be is refused before anything is changed. With --vhost everything goes into that virtual host. What was left out is listed.",
		run: func(ctx context.Context, s *session, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			query := url.Values{"report": {"true"}}
			for name, on := range map[string]bool{"dry_run": dry, "skip_if_unchanged": unchanged, "skip_unsupported": unsupported} {
				if on {
					query.Set(name, "true")
				}
			}
			return s.importDefinitions(ctx, t.env.Stdin, fileOf(args), t.definitionsPath()+"?"+query.Encode(), dry)
		},
	})
	for _, cmd := range []*cobra.Command{export, imports} {
		cmd.Flags().StringVar(&format, "format", formatJSON, "json is the only one")
	}
	imports.Flags().BoolVar(&dry, "dry-run", false, "say what would be changed, and change nothing")
	imports.Flags().BoolVar(&unchanged, "skip-if-unchanged", false, "do nothing if the same file was the last that was loaded like this, or by load-definitions")
	imports.Flags().BoolVar(&unsupported, "skip-unsupported", false, "leave out what Warren does not have, such as streams, in place of refusing the file")
	return []*cobra.Command{export, imports}
}

func checkFormat(format string) error {
	if format != formatJSON {
		return usage("format '%s' is not supported: want json", format)
	}
	return nil
}

func fileOf(args []string) string {
	if len(args) == 0 {
		return stdio
	}
	return args[0]
}

// definitionsPath is that of everything, or of the virtual host that was named.
func (t *tool) definitionsPath() string {
	if t.given("vhost") {
		return path("definitions", t.opt.vhost)
	}
	return path("definitions")
}

func (s *session) exportDefinitions(ctx context.Context, file, at string) error {
	resp, body, err := s.send(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return s.refused(resp, body)
	}
	body = append(body, '\n')
	if file == stdio {
		s.printf("%s", body)
		return nil
	}
	s.say("Exporting definitions in JSON to a file at %q ...", file)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return usage("%v", err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil { // it was there before; hashes of passwords are about to be in it
			return errors.Join(usage("%s can be read by others: %v", file, err), f.Close())
		}
	}
	_, err = f.Write(body)
	synced := f.Sync()
	if errors.Is(synced, syscall.EINVAL) { // a pipe or a device, such as /dev/stdout: fsync(2)
		synced = nil
	}
	if err = errors.Join(err, synced, f.Close()); err != nil {
		return errorf(ExitSoftware, "write %s: %v", file, err)
	}
	var d struct{ Explanation string }
	if json.Unmarshal(body, &d) == nil && strings.Contains(d.Explanation, altered) {
		s.printf("%s\n", d.Explanation)
	}
	return nil
}

// importReport is the node's answer to an import.
type importReport struct {
	Unchanged bool `json:"unchanged"`
	Counts    map[string]struct{ Created, Updated, Unchanged, Skipped, Failed int }
	Changes   []struct {
		Kind, VHost, Name, Action string
		Differences               []struct {
			Field    string
			From, To any
		}
	}
	Skipped []struct{ Kind, VHost, Name, Reason string }
}

func (s *session) importDefinitions(ctx context.Context, stdin io.Reader, file, at string, dry bool) error {
	raw, err := readDefinitions(stdin, file)
	if err != nil {
		return err
	}
	if file == stdio {
		s.say("Importing definitions in JSON from standard input ...")
	} else {
		s.say("Importing definitions in JSON from a file at %q ...", file)
	}
	var answer json.RawMessage
	if err := s.do(ctx, http.MethodPost, at, rawJSON(raw), &answer); err != nil {
		if e, ok := errors.AsType[*Error](err); ok { // the node names its query parameter
			e.Text = strings.Replace(e.Text, "(skip_unsupported leaves", "(--skip-unsupported leaves", 1)
		}
		return found(err, errorf(ExitSoftware, "node %s does not import definitions", s.name))
	}
	if s.opt.formatter == formatJSON {
		s.printf("%s\n", answer)
		return nil
	}
	var r importReport
	if err := json.Unmarshal(answer, &r); err != nil {
		return errorf(ExitSoftware, "the answer of %s is not understood: %v", s.name, err)
	}
	s.tellImport(&r, dry)
	return nil
}

// tellImport tells in words what became of an import.
func (s *session) tellImport(r *importReport, dry bool) {
	in := func(vhost string) string {
		if vhost == "" {
			return ""
		}
		return " in vhost '" + vhost + "'"
	}
	if dry {
		for _, c := range r.Changes {
			s.printf("%s %s '%s'%s\n", c.Action, c.Kind, c.Name, in(c.VHost))
			for _, d := range c.Differences {
				s.printf("    %s: %v -> %v\n", d.Field, d.From, d.To)
			}
		}
	}
	for _, n := range r.Skipped {
		s.printf("left out: %s '%s'%s: %s\n", n.Kind, n.Name, in(n.VHost), n.Reason)
	}
	var created, updated, unchanged int
	for _, c := range r.Counts {
		created, updated, unchanged = created+c.Created, updated+c.Updated, unchanged+c.Unchanged
	}
	switch {
	case r.Unchanged:
		s.printf("the same definitions were loaded before: nothing was changed\n")
	case dry:
		s.printf("nothing was changed: %d to create, %d to update, %d as they are, %d left out\n", created, updated, unchanged, len(r.Skipped))
	default:
		s.printf("%d created, %d updated, %d as they were, %d left out\n", created, updated, unchanged, len(r.Skipped))
	}
}

func readDefinitions(stdin io.Reader, file string) ([]byte, error) {
	from := stdin
	if file != stdio {
		f, err := os.Open(file)
		if err != nil {
			return nil, usage("%v", err)
		}
		defer f.Close()
		from = f
	}
	if from == nil {
		return nil, usage("standard input is empty")
	}
	raw, err := io.ReadAll(io.LimitReader(from, definitionsBytesMax+1))
	switch {
	case err != nil:
		return nil, usage("%s: %v", file, err)
	case len(raw) > definitionsBytesMax:
		return nil, usage("%s has more than %d bytes", file, definitionsBytesMax)
	}
	return raw, nil
}
