package resource

// Efforts are the levels of effort, from the least to the most.
var Efforts = []string{"low", "medium", "high", "xhigh", "max"}

// Model says which model an agent thinks with, and how. Effort and Speed are always resolved.
type Model struct {
	ID           string `json:"id"`
	Effort       Effort `json:"effort"`
	Speed        string `json:"speed"` // standard | fast
	InferenceGeo string `json:"inference_geo,omitzero"`
}

// Effort is how hard the model works on each request.
type Effort struct {
	Type string `json:"type"` // one of Efforts
}

// Defaults is what the server decides when a request leaves it open.
type Defaults struct {
	// DefaultEffort names the effort of a model for which none is given. If it is nil or answers "", effort is high.
	DefaultEffort func(model string) string
}

func (d Defaults) effort(model string) Effort {
	if d.DefaultEffort != nil {
		if effort := d.DefaultEffort(model); effort != "" {
			return Effort{effort}
		}
	}
	return Effort{"high"}
}

// modelParams is a model as asked for.
type modelParams struct {
	id     string
	effort Optional[string]
	speed  string
	geo    string
}

// readModel reads the id of a model, or an object with an id.
func readModel(n node) modelParams {
	if n.raw.Kind() == '"' {
		return modelParams{id: n.text(), speed: "standard"}
	}
	if n.is('{', "a string or an object") {
		o := n.object("id", "effort", "speed", "inference_geo")
		return modelParams{
			id:     o.field("id").text(),
			effort: optional(o.field("effort"), readEffort),
			speed:  optional(o.field("speed"), func(n node) string { return n.word("standard", "fast") }).Or("standard"),
			geo:    optional(o.field("inference_geo"), func(n node) string { return n.word("us", "global") }).Or(""),
		}
	}
	return modelParams{}
}

func readEffort(n node) string {
	if n.raw.Kind() == '"' {
		return n.word(Efforts...)
	}
	if n.is('{', "a string or an object") {
		return n.object("type").field("type").word(Efforts...)
	}
	return ""
}

func (p modelParams) resolve(d Defaults) Model {
	effort, ok := p.effort.Value()
	if !ok {
		effort = d.effort(p.id).Type
	}
	return Model{ID: p.id, Effort: Effort{effort}, Speed: p.speed, InferenceGeo: p.geo}
}

// replace makes the model that follows current in an update. The whole model is replaced, but effort stays as it was when
// it is left out and the model is the same.
func (p modelParams) replace(current Model, d Defaults) Model {
	next := p.resolve(d)
	if !p.effort.Given() && p.id == current.ID {
		next.Effort = current.Effort
	}
	return next
}
