// Package backup is the archive that a backup of a cluster is kept in: what is in it, in which order, and how it is known to be whole.
//
// A [Writer] writes it in one pass, a [Reader] reads it in one pass; neither holds more than one part's piece in memory. Nothing of an
// archive counts before [Reader.Next] has returned io.EOF: only then every part has been compared with the checksums at the end. The format is
// described in docs/formats/backup.md.
//
// What the parts mean is others' business: package backup/cut takes them from a running cluster, package backup/restore makes a data
// folder of them.
package backup
