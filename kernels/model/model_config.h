#pragma once

#include <string>

#include "kernels/core/model_spec.h"

namespace hbmtune {

// Reads a Hugging Face config.json: Llama, Mistral, Qwen2, Falcon (both decoder generations) and
// GPT-2, with the defaults of Transformers' own config classes where a key is absent; hidden size,
// layers, heads and vocabulary must be there (and Llama's inner width). `name` is for people; it
// becomes ModelSpec::name. Throws std::invalid_argument with one sentence: not JSON, not an
// object, an unsupported or missing architecture, a missing or senseless size, heads that do not
// divide, or a feature that is not modelled (ALiBi, quantised weights, mixture of
// experts, other activations).
ModelSpec ParseModelConfig(const std::string& json_text, const std::string& name);

// Throws std::invalid_argument unless every size is positive and sane and the heads divide.
// ParseModelConfig calls it; so should whoever builds a ModelSpec by hand or reads one off a wire.
void CheckModelSpec(const ModelSpec& spec);

}  // namespace hbmtune
