#include "server/node/flags/environment.h"
