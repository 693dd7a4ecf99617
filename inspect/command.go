package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// Command returns the command `inspect`, which writes to out. wrap marks the errors of the work itself, as against those of arguments.
func Command(out io.Writer, wrap func(error) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Read the data folder of a node that is stopped or broken",
		Long: "Read the data folder of a node without a lock and without changing anything. While a node runs there, what is shown is some\n" +
			"moment of it; its catalog cannot be read then. What stands above a snapshot is in the log here and not known to be committed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	p := &printer{out: out}
	cmd.PersistentFlags().BoolVar(&p.json, "json", false, "print JSON")
	for _, v := range []verb{
		{use: "identity DIR", short: "The node's name, storage id and cluster", folder: p.identity},
		{use: "catalog DIR", short: "Nodes, users, virtual hosts and queues, and Raft's state of the catalog", folder: p.catalog},
		{use: "raft DIR [ID]", short: "Raft's state of each queue's replica, or of one", log: p.raft},
		{use: "segments DIR", short: "Every record of the segment log", folder: p.segments},
		{use: "log DIR ID", short: "The entries of a queue's log, and those kept below it", queue: p.entries, lists: true},
		{use: "snapshot DIR ID", short: "The newest snapshot of a queue", queue: p.snapshot},
		{use: "queue DIR ID", short: "A queue's state: counts, watermarks, counters", queue: p.queue},
		{use: "messages DIR ID", short: "The live messages of a queue, with their bodies in JSON", queue: p.messages, lists: true},
		{use: "outbox DIR ID", short: "The dead letters of a queue that are on their way out", queue: p.outbox, lists: true},
	} {
		cmd.AddCommand(v.command(p, wrap))
	}
	return cmd
}

// verb is one kind of report; one of the functions is set.
type verb struct {
	use, short string
	folder     func(dir string) error
	log        func(f *Folder, queue uint64) error // 0: all
	queue      func(f *Folder, queue uint64) error
	lists      bool // takes --from and --limit
}

func (v verb) command(p *printer, wrap func(error) error) *cobra.Command {
	cmd := &cobra.Command{Use: v.use, Short: v.short}
	if v.lists {
		cmd.Flags().Uint64Var(&p.from, "from", 0, "first entry, message or item")
		cmd.Flags().IntVar(&p.limit, "limit", 100, "how many at most; 0 is all")
	}
	least, most := 2, 2
	if v.folder != nil || v.log != nil {
		least = 1
	}
	if v.folder != nil {
		most = 1
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("usage: %s", cmd.UseLine())
		}
		return nil
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		var id uint64
		if len(args) == 2 {
			var err error
			if id, err = strconv.ParseUint(args[1], 10, 64); err != nil || id == 0 {
				return fmt.Errorf("queue id '%s': want a number, as `inspect raft` lists them", args[1])
			}
		}
		if p.limit < 0 {
			return fmt.Errorf("limit %d: want 0 or more", p.limit)
		}
		if err := v.run(args[0], id); err != nil {
			return wrap(noFolder(args[0], err))
		}
		return nil
	}
	return cmd
}

// noFolder says of err that dir is not what is meant, if it looks so.
func noFolder(dir string, err error) error {
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, e := os.Stat(filepath.Join(dir, identityFile)); e == nil {
		return err // a part is missing, and err names it
	}
	return fmt.Errorf("%w: '%s' is not the data directory of a node, which has a file %s", err, dir, identityFile)
}

func (v verb) run(dir string, id uint64) error {
	if v.folder != nil {
		return v.folder(dir)
	}
	f, err := Open(dir)
	if err != nil {
		return err
	}
	if v.log != nil {
		err = v.log(f, id)
	} else {
		err = v.queue(f, id)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// printer writes reports.
type printer struct {
	out   io.Writer
	json  bool
	from  uint64
	limit int
}

// show writes v as JSON, or what text writes to a table.
func (p *printer) show(v any, text func(w io.Writer)) error {
	if p.json {
		e := json.NewEncoder(p.out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// line writes cells with tabs between them. What a client chose is shown so that it cannot disturb a terminal.
func line(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = printable(fmt.Sprint(c))
	}
	_, _ = fmt.Fprintln(w, strings.Join(texts, "\t")) // the writer keeps its error
}

func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
