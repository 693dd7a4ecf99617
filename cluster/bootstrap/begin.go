package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A cluster that is restored from a backup begins like one that is founded: with all its members at once, each of which promises to begin
// with these others. What differs is that its id and its members' are known, the same for every restore of that backup. So the members agree on the folders
// instead (pledge.Copies): a folder that was restored for a node when the cluster had begun is told apart from the one that the node began with, and that
// has votes and confirmed messages which this one would deny.

// roundRestored is a round of a node that was restored for cluster want.
func (r *runner) roundRestored(ctx context.Context, want *pledge, folder string) (waiting string, err error) {
	answers := r.askAll(ctx)
	begun, why := r.begunAmong(answers, want)
	switch {
	case why != "":
		return why, nil
	case begun == nil:
	case begun.copyOf(r.self) != folder:
		return "", fmt.Errorf("%w: wipe it, the node then joins as a new one", ErrRestoredLater)
	default:
		err := r.cfg.Identity.adopt(*begun, nil)
		if err == nil {
			r.cfg.Logger.Info("found the restored cluster", "cluster", begun.ClusterID)
		}
		return "", ignoreRefused(err)
	}
	copies, others, why := r.allRestored(answers, want, folder)
	if why != "" {
		return why, nil
	}
	return r.propose(ctx, pledge{ClusterID: want.ClusterID, Members: want.Members, Copies: copies}, others)
}

// begunAmong returns how the restored cluster has begun, nil if nobody has.
func (r *runner) begunAmong(answers []answer, want *pledge) (begun *pledge, why string) {
	for _, a := range answers {
		if a.status == nil || a.status.Cluster == nil {
			continue
		}
		switch c := a.status.Cluster; {
		case c.ClusterID != want.ClusterID:
			return nil, fmt.Sprintf("node '%s' belongs to cluster %s, and this one is restored for %s: configure the addresses of one", nameOf(a.peer.Node), c.ClusterID, want.ClusterID)
		case len(c.Members) == 0 && begun == nil:
			why = fmt.Sprintf("node '%s' has joined the restored cluster, and none that it began with answers", nameOf(a.peer.Node))
		case len(c.Members) > 0:
			begun, why = c, ""
		}
	}
	return begun, why
}

// allRestored returns the folders of all members, and the answers of the others, if all are there, or why the cluster does not begin here now.
func (r *runner) allRestored(answers []answer, want *pledge, folder string) (copies []string, others []answer, why string) {
	var missing []string
	for _, m := range want.Members {
		if m == r.self {
			copies = append(copies, folder)
			continue
		}
		i := slices.IndexFunc(answers, func(a answer) bool { return a.peer.Node == m && a.status != nil })
		if i < 0 || !answers[i].status.Restored.sameCluster(want) {
			missing = append(missing, nameOf(m))
			continue
		}
		copies, others = append(copies, answers[i].status.Copy), append(others, answers[i])
	}
	switch first := nameOf(want.Members[0]); {
	case len(missing) > 0:
		if why := otherRestore(answers, want, missing); why != "" {
			return nil, nil, why
		}
		return nil, nil, fmt.Sprintf("the restored cluster begins with all its nodes, missing are: %s", strings.Join(missing, ", "))
	case first != nameOf(r.self):
		return nil, nil, fmt.Sprintf("node '%s' is to propose", first)
	}
	return copies, others, ""
}

// otherRestore tells which of the missing members is there, and is restored from another backup or with other options. Such nodes have unlike catalogs.
func otherRestore(answers []answer, want *pledge, missing []string) (why string) {
	for _, name := range missing { // in their order, so that the reason stays the same
		for _, a := range answers {
			if a.status == nil || a.status.Restored == nil || a.status.Restored.sameCluster(want) || nameOf(a.peer.Node) != name {
				continue
			}
			return fmt.Sprintf("node '%s' is restored for cluster %s, and this one for %s: restore all from the same backup with the same options",
				name, a.status.Restored.ClusterID, want.ClusterID)
		}
	}
	return ""
}
