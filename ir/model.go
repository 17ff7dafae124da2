package ir

// Model is a graph with what surrounds it in a file.
type Model struct {
	IRVersion       int64
	ProducerName    string
	ProducerVersion string
	Domain          string
	ModelVersion    int64
	Doc             string
	Opsets          map[string]int // domain to version ("" is ai.onnx)
	Graph           *Graph
	Functions       []*Function
	Meta            []KV
	Path            string // file it was read from, "" if none
	Raw             []byte // the encoded ModelProto as read, nil if none
}

// Function is a model-local function. Its body refers to inputs, outputs and
// attributes by name; inlining binds them.
type Function struct {
	Domain, Name, Overload string
	Inputs, Outputs        []string
	Attrs                  []string // names without default
	AttrDefaults           []Attr
	Opsets                 map[string]int
	Body                   *Graph // Inputs and Outputs as values
	Doc                    string
	Raw                    []byte
}
