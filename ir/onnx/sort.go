package onnx

import "container/heap"

// stableOrder sorts n things topologically: deps(i) lists what must stand
// before i. Of those that may come next the first in the given order does, so
// a list that is sorted stays as it is. done is false if there is a cycle;
// order then lacks what is on or behind it.
func stableOrder(n int, deps func(i int) []int) (order []int, done bool) {
	waits := make([]int, n)
	next := make([][]int, n)
	for i := range n {
		for _, d := range deps(i) {
			waits[i]++
			next[d] = append(next[d], i)
		}
	}
	var ready intHeap
	for i, w := range waits {
		if w == 0 {
			ready = append(ready, i)
		}
	}
	heap.Init(&ready)
	for len(ready) > 0 {
		i := heap.Pop(&ready).(int)
		order = append(order, i)
		for _, j := range next[i] {
			if waits[j]--; waits[j] == 0 {
				heap.Push(&ready, j)
			}
		}
	}
	return order, len(order) == n
}

// findCycle returns one cycle among the things that order lacks, each of
// which depends on the next.
func findCycle(n int, deps func(i int) []int, order []int) []int {
	sorted := make([]bool, n)
	for _, i := range order {
		sorted[i] = true
	}
	at := 0
	for at < n && sorted[at] {
		at++
	}
	seen := map[int]int{}
	var path []int
	for {
		if k, ok := seen[at]; ok {
			return path[k:]
		}
		seen[at] = len(path)
		path = append(path, at)
		for _, d := range deps(at) {
			if !sorted[d] {
				at = d
				break
			}
		}
	}
}

type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *intHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *intHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
