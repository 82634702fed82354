from __future__ import annotations

from django.urls import path

from orchestrator.web.views import team

urlpatterns = [
    path("", team.members, name="members"),
    path("<int:user_id>/role/", team.member_role, name="member_role"),
    path("<int:user_id>/remove/", team.member_remove, name="member_remove"),
    path(
        "invitations/<int:invitation_id>/revoke/",
        team.invitation_revoke,
        name="invitation_revoke",
    ),
]
