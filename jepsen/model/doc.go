// Package model holds what single objects of the broker are supposed to be, one operation
// at a time: a lock, a name of the catalog. A history is right if its operations, each
// taking effect at one moment between its call and its return, are a way through the model
// (linearizable); porcupine looks for one.
//
// A model knows nothing of histories on disk. Times are any numbers that grow.
package model
