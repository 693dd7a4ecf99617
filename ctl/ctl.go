package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Env is what the verbs take from outside.
type Env struct {
	Stdout io.Writer
	// Stdin has a password that is not among the arguments; nil is empty.
	Stdin io.Reader
	// Lookup finds environment variables: WARREN_CTL_URL, WARREN_CTL_USER,
	// WARREN_CTL_PASSWORD, WARREN_CTL_CA_FILE, WARREN_CTL_CERT_FILE, WARREN_CTL_KEY_FILE and
	// WARREN_CTL_PROFILE stand in for options that are not given; WARREN_CTL_CONFIG names the file of profiles.
	Lookup func(string) (string, bool)
}

// options are those of all verbs.
type options struct {
	url, user, password string
	local               bool
	ca, cert, key       string // files, for https
	vhost               string
	quiet, silent       bool
	noHeaders           bool
	formatter           string
	pretty              bool // tables have frames
	profile             string
	timeout             int // seconds
	idempotently        bool
}

// tool makes the verbs.
type tool struct {
	env Env
	opt options
	// given tells which options were. A verb may have one of its own by the same name,
	// which does not count.
	given func(name string) bool
}

// topics are the verbs, by the file that has them.
var topics = []func(*tool) []*cobra.Command{
	gossipVerbs,
	policyVerbs,
	queueVerbs,
	topologyVerbs,
	connectionVerbs,
	parameterVerbs,
	shovelVerbs,
	localVerbs,
	clientVerbs,
	statusVerbs,
	reportVerbs,
	outboxVerbs,
	closingVerbs,
	peekVerbs,
	dlqVerbs,
	limitVerbs,
	userVerbs,
	permissionVerbs,
	vhostVerbs,
	maintenanceVerbs,
	flagVerbs,
	stewardVerbs,
	clusterVerbs,
	replicaVerbs,
	quorumVerbs,
	healthVerbs,
	diagnosticVerbs,
	awaitVerbs,
	backupVerbs,
	eventVerbs,
	definitionVerbs,
	recoveryVerbs,
}

// Command returns the command `ctl` with all verbs. An error of its run is an [*Error].
func Command(env Env) *cobra.Command {
	t := &tool{env: env}
	cmd := &cobra.Command{
		Use:   "ctl",
		Short: "Inspect and administer a running cluster, with rabbitmqctl's commands",
		Long: "Inspect and administer a running cluster, with rabbitmqctl's commands.\n\n" +
			"Any node of the cluster answers. The exit code is 0 after success, 64 for a wrong\n" +
			"command line, 65 if what is named does not exist, 67 for a user that does not exist,\n" +
			"69 if the node cannot answer, 70 if it refuses, 75 if it did not answer in time and\n" +
			"77 if the user may not do it.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return notFound(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	t.addOptions(cmd)
	for _, verbs := range topics {
		cmd.AddCommand(verbs(t)...)
	}
	cmd.AddCommand(helpVerb())
	cmd.SetFlagErrorFunc(wrongFlag)
	return cmd
}

func (t *tool) addOptions(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.SortFlags = false
	t.given = f.Changed
	o := &t.opt
	f.StringVar(&o.url, "url", "http://127.0.0.1:15672", "a node's management API, or unix://PATH of its control socket (WARREN_CTL_URL)")
	f.BoolVar(&o.local, "local", false, "connect to the node on this machine through the socket in its data directory (WARREN_DATA_DIR, or ./data), without a password")
	f.StringVar(&o.user, "user", "guest", "user name to log in with (WARREN_CTL_USER)")
	f.StringVar(&o.password, "password", "guest", "the user's password; prefer WARREN_CTL_PASSWORD, which other users of the machine cannot see")
	f.StringVar(&o.ca, "ca-file", "", "CA certificates to verify the node with (PEM), the system's if not given (WARREN_CTL_CA_FILE)")
	f.StringVar(&o.cert, "cert-file", "", "client certificate (PEM), which identifies the user unless --user is given (WARREN_CTL_CERT_FILE)")
	f.StringVar(&o.key, "key-file", "", "key of that certificate (PEM) (WARREN_CTL_KEY_FILE)")
	f.StringVarP(&o.vhost, "vhost", "p", "/", "virtual host")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only results, without a line that says what is done")
	f.BoolVarP(&o.silent, "silent", "s", false, "like --quiet, and no column names either")
	f.BoolVar(&o.noHeaders, "no-table-headers", false, "no column names")
	f.StringVar(&o.formatter, "formatter", formatTable, "form of lists: table, pretty_table, json or csv")
	f.StringVar(&o.profile, "profile", profileDefault, "name of a cluster in ~/.config/warren/ctl.yaml, or in the file WARREN_CTL_CONFIG (WARREN_CTL_PROFILE)")
	f.BoolVar(&o.idempotently, "idempotently", false, "do not fail if the object to be deleted does not exist")
	f.IntVarP(&o.timeout, "timeout", "t", 60, "`seconds` to wait for the answer; 0: no limit")
}

// fromElsewhere fills in options that were not given: from the environment, or else from a profile.
func (t *tool) fromElsewhere() error {
	named := t.given("user")
	if err := t.fromProfile(&named); err != nil {
		return err
	}
	for name, to := range map[string]*string{
		"url": &t.opt.url, "user": &t.opt.user, "password": &t.opt.password,
		"ca-file": &t.opt.ca, "cert-file": &t.opt.cert, "key-file": &t.opt.key,
	} {
		variable := "WARREN_CTL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if v, ok := t.env.Lookup(variable); ok && v != "" && !t.given(name) {
			*to = v
			named = named || name == "user"
		}
	}
	if t.opt.cert != "" && !named {
		t.opt.user = "" // the certificate says who asks
	}
	if t.opt.local {
		dir, ok := t.env.Lookup("WARREN_DATA_DIR")
		if !ok || dir == "" {
			dir = "data"
		}
		t.opt.url = unixScheme + filepath.Join(dir, "control.sock")
	}
	return nil
}

// verb describes one command.
type verb struct {
	use, short, long string
	// min and max bound the number of arguments; max -1: any number.
	min, max int
	// patient: it takes as long as it takes, unless --timeout is given.
	patient bool
	run     func(ctx context.Context, s *session, args []string) error
}

// command makes a verb's command. Options of its own are added to the result.
func (t *tool) command(v verb) *cobra.Command {
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long,
		Args: func(cmd *cobra.Command, args []string) error {
			whole := strings.TrimSuffix(cmd.CommandPath(), cmd.Name()) + v.use
			switch {
			case len(args) < v.min:
				return usage("not enough arguments.\nUsage: %s", whole)
			case v.max >= 0 && len(args) > v.max:
				return usage("too many arguments.\nUsage: %s", whole)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.fromElsewhere(); err != nil {
				return err
			}
			s, err := t.open()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if t.opt.timeout > 0 && (!v.patient || t.given("timeout")) {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(t.opt.timeout)*time.Second)
				defer cancel()
			}
			if err := v.run(ctx, s, args); err != nil {
				return asError(err)
			}
			if err := s.flush(); err != nil {
				return errorf(ExitSoftware, "output: %v", err)
			}
			return nil
		},
	}
	return cmd
}

// asError makes an [*Error] of what a verb returned.
func asError(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return errorf(ExitSoftware, "%v", err)
}

// open checks the options and makes the session of one verb.
func (t *tool) open() (*session, error) {
	switch t.opt.formatter {
	case formatTable, formatJSON, formatCSV:
	case formatPretty:
		t.opt.formatter, t.opt.pretty = formatTable, true
	default:
		return nil, usage("formatter '%s' is not known: want table, pretty_table, json or csv", t.opt.formatter)
	}
	if t.opt.timeout < 0 {
		return nil, usage("--timeout is negative")
	}
	c, err := newClient(&t.opt)
	if err != nil {
		return nil, err
	}
	return &session{client: c, opt: t.opt, out: t.env.Stdout}, nil
}

// Print writes err as a verb's failure, as rabbitmqctl does.
func Print(w io.Writer, err *Error) {
	if err.Code == ExitUsage {
		fmt.Fprintf(w, "Error (argument validation): %s\n", visibleLines(err.Text))
		return
	}
	fmt.Fprintf(w, "Error:\n%s\n", visibleLines(err.Text))
}
