// Package netns has the tests in which each node has an address of its own, as a pod has: it loses and changes it, finds the others by a
// DNS server of the test's, and its links are cut in one direction or both.
//
// Each test has a network of its own (jepsen/network) in network namespaces that end with it. They need root, or a kernel that lets
// users have namespaces, and /dev/net/tun. Without these the tests fail for root and with CI set, and are skipped for other users.
package netns
