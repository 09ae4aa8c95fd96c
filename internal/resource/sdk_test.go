package resource_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/respjson"

	"github.com/perdure/perdure/internal/resource"
)

// The official SDK must find every field that it requires in what we serve, and we must serve no field that it does not
// know: whatever is lost in either direction is named.
func TestOfficialSDKReadsOurAnswers(t *testing.T) {
	session := exampleSession(t)
	archived, _ := fullAgent(t).Archive(later)
	for name, c := range map[string]struct {
		sent any
		into any
	}{
		"agent":           {fullAgent(t), new(anthropic.BetaManagedAgentsAgent)},
		"archived agent":  {archived, new(anthropic.BetaManagedAgentsAgent)},
		"minimal agent":   {mustCreateAgent(t, `{"name":"a","model":"m"}`), new(anthropic.BetaManagedAgentsAgent)},
		"snapshot":        {fullAgent(t).Snapshot(), new(anthropic.BetaManagedAgentsSessionAgent)},
		"default":         {mustCreateEnvironment(t, `{"name":"a"}`), new(anthropic.BetaEnvironment)},
		"limited":         {mustCreateEnvironment(t, limitedBody), new(anthropic.BetaEnvironment)},
		"self-hosted":     {mustCreateEnvironment(t, `{"name":"a","config":{"type":"self_hosted"}}`), new(anthropic.BetaEnvironment)},
		"session":         {session, new(anthropic.BetaManagedAgentsSession)},
		"file resource":   {session.Resources[0], new(anthropic.BetaManagedAgentsFileResource)},
		"file":            {resource.File{ID: fileID, Type: "file", Filename: "a", CreatedAt: moment}, new(anthropic.BetaFileMetadata)},
		"output":          {resource.File{ID: fileID, Type: "file", ExpiresAt: &later, Scope: resource.SessionScope("s"), CreatedAt: moment}, new(anthropic.BetaFileMetadata)},
		"deleted file":    {resource.Deleted{ID: fileID, Type: "file_deleted"}, new(anthropic.BetaDeletedFile)},
		"deleted session": {resource.Deleted{ID: fileID, Type: "session_deleted"}, new(anthropic.BetaManagedAgentsDeletedSession)},
	} {
		t.Run(name, func(t *testing.T) {
			if err := json.Unmarshal(encode(t, c.sent), c.into); err != nil {
				t.Fatal(err)
			}
			for _, fault := range lost(reflect.ValueOf(c.into).Elem(), name) {
				t.Error(fault)
			}
		})
	}
}

// lost names, in a value that the SDK decoded, the required fields that were missing or invalid and the fields that the
// SDK did not know.
func lost(v reflect.Value, path string) []string {
	var faults []string
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			faults = append(faults, lost(v.Index(i), path+"[]")...)
		}
	case reflect.Struct:
		// A union holds the fields of all its variants; only the one that is meant counts.
		if as := v.MethodByName("AsAny"); as.IsValid() {
			variant := as.Call(nil)[0]
			if variant.IsNil() {
				return []string{path + ": the SDK does not know this variant"}
			}
			return lost(variant.Elem(), path)
		}
		meta := v.FieldByName("JSON")
		if !meta.IsValid() {
			return nil
		}
		if extra := meta.FieldByName("ExtraFields"); extra.IsValid() {
			for _, key := range extra.MapKeys() {
				if !strings.HasSuffix(path, ".InputSchema") { // a schema may hold any keyword
					faults = append(faults, path+": the SDK does not know "+key.String())
				}
			}
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			state, ok := fieldState(meta, field.Name)
			if !ok {
				continue
			}
			at := path + "." + field.Name
			required := field.Tag.Get("api") == "required" || field.Tag.Get("default") != ""
			if required && state.Raw() == "" {
				faults = append(faults, at+": is missing")
			}
			if state.Raw() == "" || state.Raw() == "null" {
				continue
			}
			if !state.Valid() {
				faults = append(faults, at+": the SDK cannot read "+state.Raw())
			}
			faults = append(faults, lost(v.Field(i), at)...)
		}
	}
	return faults
}

func fieldState(meta reflect.Value, name string) (respjson.Field, bool) {
	state := meta.FieldByName(name)
	if !state.IsValid() {
		return respjson.Field{}, false
	}
	field, ok := state.Interface().(respjson.Field)
	return field, ok
}

func TestOfficialSDKSeesTheValues(t *testing.T) {
	var agent anthropic.BetaManagedAgentsAgent
	if err := json.Unmarshal(encode(t, fullAgent(t)), &agent); err != nil {
		t.Fatal(err)
	}
	if agent.Model.ID != "claude-opus-5-5" || agent.Model.Effort.Type != "low" || agent.Model.Speed != "fast" ||
		agent.ExecutionIdentity.RoleARN == "" || !agent.CreatedAt.Equal(moment.Time) || len(agent.Skills) != 2 {
		t.Errorf("got %+v", agent)
	}
	toolset := agent.Tools[0].AsAgentToolset20260401()
	if toolset.DefaultConfig.PermissionPolicy.Type != "always_ask" || len(toolset.Configs) != 4 {
		t.Errorf("got toolset %+v", toolset)
	}
	fetch := toolset.Configs[2].AsWebFetch()
	if fetch.MaxContentTokens != 5000 || fetch.URLSources.ClientToolResults.Tools[0].Name != "ticket" || fetch.AllowedDomains[0] != "docs.example.com" {
		t.Errorf("got web_fetch %+v", fetch)
	}
	if search := toolset.Configs[3].AsWebSearch(); search.UserLocation.City != "Oslo" || search.BlockedDomains[0] != "ads.example.com/banners" {
		t.Errorf("got web_search %+v", search)
	}
	if mcp := agent.Tools[1].AsMCPToolset(); mcp.MCPServerName != "tracker" || mcp.Configs[0].Enabled {
		t.Errorf("got mcp_toolset %+v", mcp)
	}
	if custom := agent.Tools[2].AsCustom(); custom.Name != "ticket" || custom.InputSchema.Required[0] != "id" {
		t.Errorf("got custom %+v", custom)
	}
}

// What the SDK makes of its own parameter types must be accepted, and mean what was meant.
func TestOfficialSDKRequestsAreAccepted(t *testing.T) {
	marshal := func(v any) []byte {
		body, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	created, err := resource.CreateAgent(marshal(anthropic.BetaAgentNewParams{
		Name:   "SDK",
		Model:  anthropic.BetaManagedAgentsModelConfigParams{ID: "claude-opus-5-5"},
		System: anthropic.String("Be brief."),
		Tools: []anthropic.BetaAgentNewParamsToolUnion{
			{OfAgentToolset20260401: &anthropic.BetaManagedAgentsAgentToolset20260401Params{}},
			{OfCustom: &anthropic.BetaManagedAgentsCustomToolParams{
				Name: "weather", Description: "Tells the weather",
				InputSchema: anthropic.BetaManagedAgentsCustomToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"}},
			}},
		},
	}), defaults)
	if err != nil {
		t.Fatal(err)
	}
	if _, enabled, policy := created.ToolPolicy("bash"); !enabled || policy != "always_allow" || *created.System != "Be brief." {
		t.Errorf("got %s", encode(t, created))
	}
	environment, err := resource.CreateEnvironment(marshal(anthropic.BetaEnvironmentNewParams{
		Name: "SDK",
		Config: anthropic.BetaEnvironmentNewParamsConfigUnion{OfCloud: &anthropic.BetaCloudConfigParams{
			Networking: anthropic.BetaCloudConfigParamsNetworkingUnion{OfLimited: &anthropic.BetaLimitedNetworkParams{AllowedHosts: []string{"example.com"}}},
		}},
	}))
	if err != nil || !environment.Config.Network().Allows("example.com") {
		t.Errorf("got %v, %v", environment, err)
	}
	create, err := resource.DecodeSessionCreate(marshal(anthropic.BetaSessionNewParams{
		Agent:         anthropic.BetaSessionNewParamsAgentUnion{OfString: anthropic.String(agentID)},
		EnvironmentID: environmentID,
		Title:         anthropic.String("T"),
		Resources: []anthropic.BetaSessionNewParamsResourceUnion{{OfFile: &anthropic.BetaManagedAgentsFileResourceParams{
			FileID: fileID, MountPath: anthropic.String("/data.csv")}}},
		Budget: anthropic.BetaManagedAgentsBudgetLimitParam{MaxListCost: anthropic.BetaMonetaryAmountParam{Amount: "100", Currency: "USD"}},
	}))
	if err != nil || create.Files[0].MountPath != "/mnt/session/uploads/data.csv" || create.Budget.Cents() != 100 {
		t.Errorf("got %+v, %v", create, err)
	}
}
