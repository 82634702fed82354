from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin

from orchestrator.projects.models import ApiToken, Membership, Project, User

admin.site.register(User, UserAdmin)


@admin.register(Project)
class ProjectAdmin(admin.ModelAdmin[Project]):
    list_display = ["name", "created_at"]


@admin.register(Membership)
class MembershipAdmin(admin.ModelAdmin[Membership]):
    list_display = ["project", "user", "role"]


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    list_display = ["prefix", "name", "project", "user", "role", "last_used_at", "revoked_at"]
    readonly_fields = ["prefix", "digest"]
