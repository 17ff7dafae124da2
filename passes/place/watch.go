package place

// watches holds, for each section, an item to place that can lie on its floor;
// while there is one the floor cannot rise. Each item has the list of sections
// that rely on it, so that only those are looked at when it is placed or pushed
// up.
type watches struct {
	item       []int32 // by section: the item, or -1
	next, prev []int32 // by section: the list of its item; -1 ends it
	first      []int32 // by item: its first section, or -1
}

func newWatches(items, sections int) watches {
	w := watches{item: make([]int32, sections), next: make([]int32, sections), prev: make([]int32, sections), first: make([]int32, items)}
	w.reset()
	return w
}

func (w *watches) reset() {
	for i := range w.item {
		w.item[i] = -1
	}
	for i := range w.first {
		w.first[i] = -1
	}
}

// set makes section t rely on item k, or on none.
func (w *watches) set(t, k int32) {
	if old := w.item[t]; old >= 0 {
		if w.prev[t] >= 0 {
			w.next[w.prev[t]] = w.next[t]
		} else {
			w.first[old] = w.next[t]
		}
		if w.next[t] >= 0 {
			w.prev[w.next[t]] = w.prev[t]
		}
	}
	w.item[t] = k
	if k >= 0 {
		w.prev[t], w.next[t] = -1, w.first[k]
		if w.first[k] >= 0 {
			w.prev[w.first[k]] = t
		}
		w.first[k] = t
	}
}
