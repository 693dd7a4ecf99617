package ctl

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpVerb is rabbitmqctl's help. Cobra has one of its own at the root only.
func helpVerb() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Show the help of a command, as COMMAND --help does",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Parent().Find(args)
			if err != nil {
				return usage("%v", err)
			}
			if len(rest) > 0 {
				return notFound(of, rest[0])
			}
			return of.Help()
		},
	}
}

// foreignOptions are options of RabbitMQ's tools that are not here, with what there is in their place.
var foreignOptions = map[string]string{
	"n": "a node is named by --url or WARREN_CTL_URL", "node": "a node is named by --url or WARREN_CTL_URL",
	"l": "there is no Erlang here, and no Erlang names", "longnames": "there is no Erlang here, and no Erlang names",
	"erlang-cookie": "log in with --user and WARREN_CTL_PASSWORD, or use --local", "script-name": "leave it out",
	"online": "see the columns state and online", "offline": "see the columns state and online",
	"table-headers": "names of columns are shown unless --no-table-headers is given",
}

// wrongFlag is the error for options that a command does not have, or that are without a value.
func wrongFlag(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if text, ok := foreignOptions[unknown.GetSpecifiedName()]; ok {
			return usage("%v, which is RabbitMQ's: %s", err, text)
		}
	}
	return usage("%v\nSee '%s --help'.", err, cmd.CommandPath())
}
