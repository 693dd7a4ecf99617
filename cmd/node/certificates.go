package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/certs/issue"
	"github.com/warrenmq/warren/config"
)

// certificatesCommand makes authorities and certificates in a folder.
func certificatesCommand(env environment) *cobra.Command {
	var r issue.Request
	var days, authorityDays int
	cmd := &cobra.Command{
		Use:   "certificates --out DIR",
		Short: "Make authorities and certificates for nodes, clients and users",
		Long: "Make authorities and certificates in a folder: nodes/ is what every node has for the others (cluster-tls-…),\n" +
			"clients/ what it has for clients (tls-…), users/NAME what a user logs in with. Run again, it renews them by\n" +
			"the same authorities. Keep authorities/ in a safe place; nodes do not need it.",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&r.Dir, "out", "", "`folder`, made if it is not there")
	f.StringVar(&r.NodeName, "cluster-tls-name", config.Default().ClusterTLSName, "`name` in the certificate between nodes")
	f.StringSliceVar(&r.ClientNames, "name", nil, "`name` or address by which clients reach the nodes; may be given again")
	f.StringSliceVar(&r.Users, "user", nil, "`user` who gets a certificate to log in with; may be given again")
	f.IntVar(&days, "days", int(issue.LifeDefault/(24*time.Hour)), "how long certificates are valid")
	f.IntVar(&authorityDays, "authority-days", int(issue.AuthorityLifeDefault/(24*time.Hour)), "how long new authorities are valid")
	cmd.RunE = func(*cobra.Command, []string) error {
		for flag, n := range map[string]int{"days": days, "authority-days": authorityDays} {
			if n < 1 || n > 36500 {
				return fmt.Errorf("--%s: must be 1 to 36500, got %d", flag, n)
			}
		}
		if r.Dir == "" {
			return errors.New("--out is needed")
		}
		r.Life, r.AuthorityLife = time.Duration(days)*24*time.Hour, time.Duration(authorityDays)*24*time.Hour
		if err := r.Validate(); err != nil {
			return err
		}
		made, err := issue.Make(r)
		if err != nil {
			return failure{err}
		}
		for _, path := range made {
			fmt.Fprintln(env.stdout, path)
		}
		return nil
	}
	return cmd
}
