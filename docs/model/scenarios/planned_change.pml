/* A keyed retry while the operator plans a change of authority. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define PLANNED_CHANGE
#include "../dropgate.pml"
