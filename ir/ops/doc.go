// Package ops declares every operator memoc knows, one file each: the file
// `layernorm.go` is all there is to know of LayerNormalization. Declarations
// register themselves; nothing lists them. Helpers that several operators
// share live in files that start with "shared_".
//
// Gradient rules name other operators by string: a reference to an operator
// variable would be an initialization cycle.
package ops
