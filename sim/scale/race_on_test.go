//go:build race

package scale

// raceDetector makes everything several times dearer.
const raceDetector = true
