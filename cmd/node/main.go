// Command warren is the Warren message broker: `warren serve` runs a node, `warren ctl`
// asks a running one, `warren inspect` reads the data folder of a stopped one, `warren certificates` makes certificates,
// `warren translate` makes a configuration file of RabbitMQ's.
//
// Of serve and inspect the exit code is 0 after a clean stop, 1 when the node failed and 2 when a
// flag, an environment variable or the configuration file can not be used; the
// reason is then one line on standard error. Those of ctl are in package ctl.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/ctl"
	"github.com/warrenmq/warren/inspect"
)

// version is set by the linker (make build).
var version = "dev"

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// node runs one broker node until ctx ends. It returns nil after a clean stop.
type node func(ctx context.Context, cfg config.Config, log *slog.Logger, kept *logs) error

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], environment{
		lookup: os.LookupEnv,
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		serve:  serve,
	})
	stop()
	os.Exit(code)
}

// environment is what the command line takes from outside.
type environment struct {
	lookup         func(string) (string, bool)
	stdin          io.Reader
	stdout, stderr io.Writer
	serve          node
}

// execute runs the command line args and returns the exit code.
func execute(ctx context.Context, args []string, env environment) int {
	root := rootCommand(env)
	root.SetArgs(args)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	err := untilInterrupted(ctx, root, args)
	var failed failure
	var refused *ctl.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &refused):
		lastLine(env.stderr, func(w io.Writer) { ctl.Print(w, refused) })
		return refused.Code
	case errors.As(err, &failed):
		lastLine(env.stderr, func(w io.Writer) { fmt.Fprintf(w, "warren: %s\n", oneLine(failed.err)) })
		return exitFailed
	default:
		lastLine(env.stderr, func(w io.Writer) { fmt.Fprintf(w, "warren: %s\n", oneLine(err)) })
		return exitUsage
	}
}

var errInterrupted = errors.New("interrupted")

// untilInterrupted runs the command line. A node has an end of its own when ctx ends; any other command has a moment for that, and is left behind then:
// it may wait for a password, or read a large backup, and know nothing of ctx.
func untilInterrupted(ctx context.Context, root *cobra.Command, args []string) error {
	if cmd, _, err := root.Find(args); err == nil && cmd.Name() == serveName {
		return root.ExecuteContext(ctx)
	}
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }() // ends with the process at the latest
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(lastWordsTime):
		return failure{errInterrupted}
	}
}

// failure marks an error of the work itself, as against one of its settings.
type failure struct{ err error }

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func rootCommand(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "warren",
		Short:         "A replicated message broker for RabbitMQ clients",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       fmt.Sprintf("%s (%s, %s/%s)", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH),
	}
	root.SetVersionTemplate("warren {{.Version}}\n") // as of the command version
	root.AddCommand(serveCommand(env), ctl.Command(ctl.Env{Stdin: env.stdin, Stdout: env.stdout, Lookup: env.lookup}),
		inspect.Command(env.stdout, func(err error) error { return failure{err} }), certificatesCommand(env), backupCommand(env), restoreCommand(env), translateCommand(env), versionCommand(env))
	return root
}

// unknownCommand refuses what is no command, and says which one may be meant.
func unknownCommand(cmd *cobra.Command, args []string) error {
	err := cobra.NoArgs(cmd, args)
	if err == nil {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return fmt.Errorf("%w, did you mean %q?", err, like[0])
	}
	return fmt.Errorf("%w: `%s --help` lists them", err, cmd.CommandPath())
}

func versionCommand(env environment) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(env.stdout, "warren %s\n", cmd.Root().Version)
		},
	}
}

// buildVersion returns the version set at link time, with the revision that
// the Go tool recorded when there is one.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || version != "dev" {
		return version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return version + "-" + s.Value[:12]
		}
	}
	return version
}

// serveName is the command that runs a node.
const serveName = "serve"

func serveCommand(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   serveName,
		Short: "Run a node until it is interrupted",
		Long: "Run a node until it is interrupted.\n\n" +
			"Each flag can also be given as an environment variable (WARREN_AMQP_ADDR for\n" +
			"--amqp-addr) and as a key of the YAML file (amqp-addr). Flags take\n" +
			"precedence over environment variables, and those over the file.",
		Args: cobra.NoArgs,
	}
	file := cmd.Flags().String("config", "", "YAML `file` with settings (WARREN_CONFIG)")
	flags := addSettings(cmd.Flags())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: `%s --help` lists the settings", err, cmd.CommandPath())
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(config.Sources{File: *file, Env: env.lookup, Flags: flags()})
		if err != nil {
			return err
		}
		out := newLogOutput(env.stderr, leftOut(cfg))
		defer out.close(lastWordsTime)
		log, kept := newLogger(out, cfg)
		kept.flush = out.flush
		if strays := config.Strays(os.Environ()); len(strays) > 0 {
			log.Warn("environment variables that belong to no setting", "names", strays)
		}
		if err := env.serve(cmd.Context(), cfg, log, kept); err != nil {
			return failure{err}
		}
		return nil
	}
	return cmd
}

// setting is the flag of one setting: text that config reads later.
type setting struct{ text, kind string }

func (s *setting) String() string        { return s.text }
func (s *setting) Set(text string) error { s.text = text; return nil }
func (s *setting) Type() string          { return s.kind }

// addSettings declares a flag for each setting and returns a function which
// tells the flags that were given.
func addSettings(set *pflag.FlagSet) func() map[string]string {
	set.SortFlags = false
	defaults := config.Default()
	for _, o := range config.Options() {
		set.Var(&setting{text: o.Value(defaults), kind: o.Kind}, o.Name, o.Usage)
	}
	return func() map[string]string {
		given := map[string]string{}
		for _, o := range config.Options() {
			if set.Changed(o.Name) {
				given[o.Name] = set.Lookup(o.Name).Value.String()
			}
		}
		return given
	}
}
