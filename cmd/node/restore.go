package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/backup"
	"github.com/warrenmq/warren/backup/restore"
	"github.com/warrenmq/warren/cluster/bootstrap"
)

// restoreCommand is `warren restore`.
func restoreCommand(env environment) *cobra.Command {
	var from, dir, name string
	var zones []string
	var o restore.Options
	cmd := &cobra.Command{
		Use:   "restore --from FILE --data-dir DIR --node-id NAME --nodes NAME,...",
		Short: "Make the data folder of one node of a new cluster from a backup",
		Long: "Make the data folder of one node of a new cluster from a backup that `warren ctl backup` has taken.\n\n" +
			"It is done for every node of the new cluster, with the same file and the same options but for --data-dir and --node-id, before any is started;\n" +
			"the results fit together. The nodes need not be as many as they were, nor have the same names. `warren serve` then starts each as usual: they\n" +
			"find each other, and nobody founds a cluster. They begin when all of them are there, once: a folder that is restored again later, for a node that has lost its own, is\n" +
			"refused by the cluster, since that node has voted and confirmed messages meanwhile; with an empty folder it joins as a new one. The new cluster has an id of its own, so that the old one, if it still runs, cannot mix with it. A folder\n" +
			"that is not empty is refused; one that is restored from that backup already is left as it is, with exit code 0. To restore one backup twice, give another\n" +
			"--salt the second time: nodes of one restore that were forgotten somewhere are not those of the other then.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if from == "" || dir == "" || name == "" || len(o.Nodes) == 0 {
				return errors.New("--from, --data-dir, --node-id and --nodes are needed")
			}
			o.Zones = map[string]string{}
			for _, z := range zones {
				node, zone, ok := strings.Cut(z, "=")
				if !ok {
					return fmt.Errorf("--zones '%s': want NODE=ZONE", z)
				}
				o.Zones[node] = zone
			}
			if err := o.Validate(); err != nil {
				return err
			}
			if err := restoreNode(env, from, dir, name, o); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&from, "from", "", "the backup's `FILE`")
	f.StringVar(&dir, "data-dir", "", "the node's data `FOLDER`, which is empty or not there")
	f.StringVar(&name, "node-id", "", "the node's `NAME`, one of --nodes")
	f.StringSliceVar(&o.Nodes, "nodes", nil, "the `NAMES` of all nodes of the new cluster")
	f.StringSliceVar(&zones, "zones", nil, "zones of nodes, as `NODE=ZONE`,...")
	f.IntVar(&o.Replicas, "replicas", 0, "replicas that each queue has at least, if there are so many nodes; 0: as many as it had")
	f.StringVar(&o.Salt, "salt", "", "tells this restore from another one of the same backup")
	return cmd
}

func restoreNode(env environment, from, dir, name string, o restore.Options) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	res, err := restore.Run(f, dir, name, o, slog.New(slog.DiscardHandler))
	if errors.Is(err, bootstrap.ErrRestored) {
		fmt.Fprintf(env.stdout, "%s is node '%s' of the restored cluster %s already\n", dir, name, res.ClusterID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore %s from %s: %w", dir, from, err)
	}
	fmt.Fprintf(env.stdout, "%s is node '%s' of the new cluster %s, from backup %s of %s: %d queues, %d of them on this node\n",
		dir, name, res.ClusterID, res.Header.ID, res.Header.Made.Format("2006-01-02 15:04:05 MST"), res.Queues, res.Held)
	return nil
}

// backupCommand is `warren backup`.
func backupCommand(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Look at backups that `warren ctl backup` has taken",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	verify := &cobra.Command{
		Use:   "verify FILE",
		Short: "Prove that a backup is whole and can be restored",
		Long: "Prove that a backup is whole and can be restored: every part is read and compared with its checksum, every state is decoded, and no dead letter is\n" +
			"lost or doubled between any two queues.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			rep, err := verifyFile(args[0])
			if err == nil {
				err = printReport(env, rep, asJSON)
			}
			if err != nil {
				return failure{err}
			}
			return nil
		},
	}
	verify.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	inspect := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Print what a backup says of itself, as JSON, without reading it to its end",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := inspectFile(env, args[0]); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	cmd.AddCommand(verify, inspect)
	return cmd
}

func verifyFile(name string) (rep restore.Report, err error) {
	f, err := os.Open(name)
	if err != nil {
		return rep, err
	}
	defer f.Close()
	if rep, err = restore.Verify(f); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return rep, err
}

func printReport(env environment, rep restore.Report, asJSON bool) error {
	h := rep.Header
	if asJSON {
		enc := json.NewEncoder(env.stdout)
		return enc.Encode(map[string]any{
			"id": h.ID, "made": h.Made, "program": h.Program, "level": h.Level, "cluster_id": h.ClusterID, "standstill_ms": h.StandstillMillis,
			"messages": rep.Messages, "outbox": rep.Outbox, "pairs": rep.Pairs, "queues": rep.Queues,
		})
	}
	fmt.Fprintf(env.stdout, "backup %s of cluster %s, made %s by %s at level %d\n", h.ID, h.ClusterID, h.Made.Format("2006-01-02 15:04:05 MST"), h.Program, h.Level)
	w := tabwriter.NewWriter(env.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "id\tvhost\tname\tmessages\tdead letters on their way\tbytes")
	for _, q := range rep.Queues {
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%d\n", q.ID, q.VHost, q.Name, q.Messages, q.Outbox, q.Bytes)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "whole and consistent: %d queues, %d messages, %d dead letters on their way, %d pairs of queues fit together\n",
		len(rep.Queues), rep.Messages, rep.Outbox, rep.Pairs)
	return err
}

func inspectFile(env environment, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := backup.Open(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	enc := json.NewEncoder(env.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(r.Header)
}
