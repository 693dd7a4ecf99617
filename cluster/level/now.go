//go:build !level1

package level

// Now is the newest level that this program knows.
const Now = 2
