#include "server/node/flags/facts.h"
