package main

var placeCommand = &command{
	name:    "place",
	args:    "FILE.csv [flags]",
	doc:     "Place buffers given as a table (minimalloc's CSV) in one arena.",
	example: "memoc place testdata/place/small.csv --capacity 1MiB",
}

func init() { placeCommand.run = runPlace }

func runPlace(c *call) error {
	_, err := newFlags(c.cmd).parse(c, 1, 1)
	return ignoreDescribed(err)
}
